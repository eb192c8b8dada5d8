//! Expansion of one item of a block: the item is protected, left unchanged, or an error.
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Error, GenericArgument, Meta, Path, PathArguments, PathSegment, Result, ReturnType, Signature, Type,
    parse_quote,
};

use super::parse::BlockItem;
use crate::expand::{boxed, opaque, private};
use crate::item::{AnnotatedFunction, is_ours, nested};
use crate::normalise::{AttributePlan, BlockMember};
use crate::parse::AttributeArgs;

/// An error that prevents the expansion of an item.
pub(crate) enum MemberError {
    /// A mistake in the arguments of the block, which all functions share.
    Shared(Error),
    Own(Error),
}

impl From<Error> for MemberError {
    fn from(error: Error) -> Self {
        Self::Own(error)
    }
}

/// The attribute of the item itself.
enum OwnAttribute {
    Nothing,
    Skip,
    Args(Box<AttributeArgs>),
}

/// An expanded item.
pub(crate) enum ExpandedItem {
    Protected(TokenStream),
    /// An unprotected function, with a check of its return type.
    Checked(TokenStream),
    /// An unchanged declaration, with a check that follows the block.
    Declared(TokenStream),
    Unchanged,
}

/// Expands an item.
pub(crate) fn expand(
    shared: &TokenStream,
    args: &AttributeArgs,
    head: &TokenStream,
    item: &BlockItem,
) -> std::result::Result<ExpandedItem, MemberError> {
    match item {
        BlockItem::Function(function) => match own(&function.attrs)? {
            OwnAttribute::Skip => Ok(ExpandedItem::Unchanged),
            OwnAttribute::Nothing if is_async(function) => {
                protect(shared, args, AttributeArgs::default(), function).map(ExpandedItem::Protected)
            }
            OwnAttribute::Nothing => {
                not_a_future(&function.sig)?;
                Ok(no_future(args.krate.as_ref(), function).map_or(ExpandedItem::Unchanged, ExpandedItem::Checked))
            }
            OwnAttribute::Args(_) if !is_async(function) => Err(function.needs_async().into()),
            OwnAttribute::Args(own) => protect(shared, args, *own, function).map(ExpandedItem::Protected),
        },
        BlockItem::Declaration(attrs, signature, _) => {
            let own = own(attrs)?;
            declaration(&own, signature)?;
            let check = matches!(own, OwnAttribute::Nothing).then(|| beside(args.krate.as_ref(), head, signature));
            Ok(check.flatten().map_or(ExpandedItem::Unchanged, ExpandedItem::Declared))
        }
        BlockItem::Macro(attrs, tokens) => match own(attrs)? {
            OwnAttribute::Skip => Ok(ExpandedItem::Unchanged),
            OwnAttribute::Nothing | OwnAttribute::Args(_) => {
                let text = "functions that this macro expands to would run unprotected: write them out, or mark the macro \
                            `#[idempotent(skip)]`";
                Err(Error::new_spanned(tokens, text).into())
            }
        },
        BlockItem::Other(_) => Ok(ExpandedItem::Unchanged),
    }
}

fn own(attrs: &[Attribute]) -> Result<OwnAttribute> {
    let mut ours = attrs.iter().filter(|attr| is_ours(attr));
    let Some(attr) = ours.next() else { return Ok(OwnAttribute::Nothing) };
    if let Some(second) = ours.next() {
        return Err(nested(second));
    }
    if matches!(attr.meta, Meta::Path(_)) {
        return Ok(OwnAttribute::Args(Box::default()));
    }
    let args: AttributeArgs = attr.parse_args()?;
    match &args.skip {
        Some(skip)
            if !args.not_in(&AttributeArgs { skip: Some(skip.clone()), ..AttributeArgs::default() }).is_empty() =>
        {
            Err(Error::new(skip.span(), "`skip` takes no other arguments"))
        }
        Some(_) => Ok(OwnAttribute::Skip),
        None => Ok(OwnAttribute::Args(Box::new(args))),
    }
}

fn protect(
    shared: &TokenStream,
    block: &AttributeArgs,
    own: AttributeArgs,
    function: &AnnotatedFunction,
) -> std::result::Result<TokenStream, MemberError> {
    function.can_run_again()?;
    let ident = &function.sig.ident;
    // An error about an argument of the block points to the function that cannot use it.
    let inherited: AttributeArgs = syn::parse2(relocated(shared.clone(), ident.span()))?;
    let merged = own.clone().within(inherited);
    let member = BlockMember { name: ident.unraw().to_string(), inherited: merged.not_in(&own) };
    if merged.key.is_none() && !merged.is_by_param() {
        let name = &member.name;
        let text = format!(
            "missing `key` for `{name}`: give one to all functions of the block, or to this one with \
             `#[idempotent(key = …)]`, or leave it unprotected with `#[idempotent(skip)]`"
        );
        return Err(Error::new(ident.span(), text).into());
    }
    let mut plan = AttributePlan::new(merged).map_err(|error| of_plan(block, &member, error))?;
    plan.member = Some(member);
    let mut function = function.clone();
    function.attrs.retain(|attr| !is_ours(attr));
    crate::function(plan, function).map_err(MemberError::Own)
}

/// Returns the error as shared if the arguments of the block alone cause it, too.
fn of_plan(block: &AttributeArgs, member: &BlockMember, error: Error) -> MemberError {
    let mut alone = block.clone();
    alone.key.get_or_insert_with(|| parse_quote!(self));
    match AttributePlan::new(alone) {
        Err(shared) if shared.to_string() == error.to_string() => MemberError::Shared(shared),
        _ if member.inherited.is_empty() => MemberError::Own(error),
        _ => {
            let inherited: Vec<_> = member.inherited.iter().map(|name| format!("`{name}`")).collect();
            let text =
                format!("{error}\n`{}` inherits {} from the attribute on its block", member.name, inherited.join(", "));
            MemberError::Own(Error::new(error.span(), text))
        }
    }
}

fn is_async(function: &AnnotatedFunction) -> bool {
    function.sig.asyncness.is_some() || boxed::is_boxed(&function.body)
}

/// Refuses a function that is not `async` and returns a future: the source would not show that the function is
/// unprotected.
fn not_a_future(signature: &Signature) -> Result<()> {
    if !returns_future(signature) {
        return Ok(());
    }
    let name = &signature.ident;
    let text = format!(
        "`{name}` returns a future and is no `async fn`, so it would run unprotected: write `async fn {name}`, or mark it \
         `#[idempotent(skip)]`"
    );
    Err(Error::new(signature.fn_token.span, text))
}

/// Returns the function with a check of its return type by rustc, which alone knows whether an alias is a future. `None` if the
/// function needs no check.
fn no_future(krate: Option<&Path>, function: &AnnotatedFunction) -> Option<TokenStream> {
    let mut named = Vec::new();
    if let (ReturnType::Type(_, ty), None) = (&function.sig.output, &function.sig.constness) {
        named_types(ty, &mut named);
    }
    let check = check(krate, &named)?;
    let mut function = function.clone();
    let body = &function.body;
    function.body = quote_spanned!(Span::mixed_site()=>
        let _ = #check;
        #body
    );
    Some(function.into_token_stream())
}

/// Returns the check of a declaration, as an item after the block. `None` if its types have names of the block, which are unknown there.
fn beside(krate: Option<&Path>, head: &TokenStream, signature: &Signature) -> Option<TokenStream> {
    let mut named = Vec::new();
    if let ReturnType::Type(_, ty) = &signature.output {
        named_types(ty, &mut named);
    }
    let generics = signature.generics.params.to_token_stream();
    let known = |tokens: &TokenStream| -> Vec<String> {
        let words = tokens.to_string().replace(|other: char| !other.is_alphanumeric() && other != '_', " ");
        words.split(' ').map(ToOwned::to_owned).collect()
    };
    let scoped = [known(head), known(&generics), vec!["Self".to_owned()]].concat();
    named.retain(|ty| {
        known(&ty.to_token_stream()).iter().all(|word| word.is_empty() || word == "_" || !scoped.contains(word))
    });
    let check = check(krate, &named)?;
    Some(quote_spanned!(Span::mixed_site()=> const _: fn() = #check;))
}

/// Returns a closure that compiles if none of the types is a future; `None` without types.
fn check(krate: Option<&Path>, named: &[Type]) -> Option<TokenStream> {
    let private = private(krate);
    let checks = named.iter().map(|ty| {
        let place = Span::mixed_site().located_at(ty.span());
        quote_spanned!(place=> is_unprotected((&&ReturnType::<#ty>::new()).kind());)
    });
    let check = quote_spanned!(Span::mixed_site()=> || {
        use #private::returns::*;
        #(#checks)*
    });
    (!named.is_empty()).then_some(check)
}

/// Collects the types of a return type that may be aliases of futures. A constructor of a future returns `Self`.
fn named_types(ty: &Type, named: &mut Vec<Type>) {
    match ty {
        Type::Path(path) if !path.path.is_ident("Self") => {
            let is_usual = path.path.get_ident().is_some_and(|name| opaque::is_usual(&name.to_string()));
            if !is_usual && !ty.to_token_stream().to_string().contains("impl ") {
                named.push(ty.clone());
            }
            for segment in &path.path.segments {
                let PathArguments::AngleBracketed(arguments) = &segment.arguments else { continue };
                for argument in &arguments.args {
                    if let GenericArgument::Type(ty) = argument {
                        named_types(ty, named);
                    }
                }
            }
        }
        Type::Reference(reference) => named_types(&reference.elem, named),
        Type::Tuple(tuple) => tuple.elems.iter().for_each(|ty| named_types(ty, named)),
        _ => {}
    }
}

/// Refuses a declaration that returns a future: each `impl` has its own body, which the attribute of the trait does not
/// see.
fn declaration(own: &OwnAttribute, signature: &Signature) -> Result<()> {
    let is_plain = signature.asyncness.is_none() && !returns_future(signature);
    match own {
        OwnAttribute::Skip => Ok(()),
        OwnAttribute::Nothing if is_plain => Ok(()),
        OwnAttribute::Nothing | OwnAttribute::Args(_) => {
            let name = &signature.ident;
            let text = format!(
                "`{name}` has no body here, and its implementations would run unprotected: put `#[idempotent]` on each \
                 `impl`, and `#[idempotent(skip)]` on this declaration"
            );
            Err(Error::new(name.span(), text))
        }
    }
}

fn returns_future(signature: &Signature) -> bool {
    struct FutureFinder(bool);
    impl Visit<'_> for FutureFinder {
        fn visit_path_segment(&mut self, segment: &PathSegment) {
            self.0 |= segment.ident.to_string().ends_with("Future");
            visit::visit_path_segment(self, segment);
        }
    }
    let mut futures = FutureFinder(false);
    futures.visit_return_type(&signature.output);
    futures.0
}

/// Relocates tokens to `place`. Names keep their hygiene.
fn relocated(tokens: TokenStream, place: Span) -> TokenStream {
    let relocate = |token: TokenTree| match token {
        TokenTree::Group(group) => {
            let mut moved = Group::new(group.delimiter(), relocated(group.stream(), place));
            moved.set_span(group.span().located_at(place));
            TokenTree::Group(moved)
        }
        mut token => {
            token.set_span(token.span().located_at(place));
            token
        }
    };
    tokens.into_iter().map(relocate).collect()
}
