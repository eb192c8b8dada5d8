//! One item of a block: protected, left alone, or an error.
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Error, Meta, PathSegment, Result, Signature, parse_quote};

use super::parse::Item;
use crate::expand::boxed;
use crate::item::{Function, is_ours, nested};
use crate::normalise::{Member, Plan};
use crate::parse::Args;

/// The reason why an item cannot be expanded.
pub(crate) enum Wrong {
    /// A mistake in the arguments of the block, which every function has.
    Shared(Error),
    Own(Error),
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::Own(error)
    }
}

/// The content of the item's own attribute.
enum Own {
    Nothing,
    Skip,
    Args(Box<Args>),
}

/// Returns the protected function, or None if the item is left alone.
pub(crate) fn expand(
    shared: &TokenStream,
    args: &Args,
    item: &Item,
) -> std::result::Result<Option<TokenStream>, Wrong> {
    match item {
        Item::Function(function) => match own(&function.attrs)? {
            Own::Skip => Ok(None),
            Own::Nothing if is_async(function) => protect(shared, args, Args::default(), function).map(Some),
            Own::Nothing => not_a_future(&function.sig).map(|()| None).map_err(Wrong::Own),
            Own::Args(_) if !is_async(function) => Err(function.needs_async().into()),
            Own::Args(own) => protect(shared, args, *own, function).map(Some),
        },
        Item::Declaration(attrs, signature, _) => {
            declaration(&own(attrs)?, signature).map(|()| None).map_err(Wrong::Own)
        }
        Item::Macro(attrs, tokens) => match own(attrs)? {
            Own::Skip => Ok(None),
            Own::Nothing | Own::Args(_) => {
                let text = "functions that this macro expands to would run unprotected: write them out, or mark the macro \
                            `#[idempotent(skip)]`";
                Err(Error::new_spanned(tokens, text).into())
            }
        },
        Item::Other(_) => Ok(None),
    }
}

fn own(attrs: &[Attribute]) -> Result<Own> {
    let mut ours = attrs.iter().filter(|attr| is_ours(attr));
    let Some(attr) = ours.next() else { return Ok(Own::Nothing) };
    if let Some(second) = ours.next() {
        return Err(nested(second));
    }
    if matches!(attr.meta, Meta::Path(_)) {
        return Ok(Own::Args(Box::default()));
    }
    let args: Args = attr.parse_args()?;
    match &args.skip {
        Some(skip) if !args.not_in(&Args { skip: Some(skip.clone()), ..Args::default() }).is_empty() => {
            Err(Error::new(skip.span(), "`skip` leaves the function unprotected: give it no other arguments"))
        }
        Some(_) => Ok(Own::Skip),
        None => Ok(Own::Args(Box::new(args))),
    }
}

fn protect(
    shared: &TokenStream,
    block: &Args,
    own: Args,
    function: &Function,
) -> std::result::Result<TokenStream, Wrong> {
    function.can_run_again()?;
    let ident = &function.sig.ident;
    // An error about an argument of the block points to the function that it does not fit.
    let inherited: Args = syn::parse2(relocated(shared.clone(), ident.span()))?;
    let merged = own.clone().within(inherited);
    let member = Member { name: ident.unraw().to_string(), inherited: merged.not_in(&own) };
    if merged.key.is_none() && !merged.is_by_param() {
        let name = &member.name;
        let text = format!(
            "missing `key` for `{name}`: give one to all functions of the block, or to this one with \
             `#[idempotent(key = …)]`, or leave it unprotected with `#[idempotent(skip)]`"
        );
        return Err(Error::new(ident.span(), text).into());
    }
    let mut plan = Plan::new(merged).map_err(|error| of_plan(block, &member, error))?;
    plan.member = Some(member);
    let mut function = function.clone();
    function.attrs.retain(|attr| !is_ours(attr));
    crate::function(plan, function).map_err(Wrong::Own)
}

/// Returns the error of the block's arguments where they have it without those of the function, too.
fn of_plan(block: &Args, member: &Member, error: Error) -> Wrong {
    let mut alone = block.clone();
    alone.key.get_or_insert_with(|| parse_quote!(self));
    match Plan::new(alone) {
        Err(shared) if shared.to_string() == error.to_string() => Wrong::Shared(shared),
        _ if member.inherited.is_empty() => Wrong::Own(error),
        _ => {
            let inherited: Vec<_> = member.inherited.iter().map(|name| format!("`{name}`")).collect();
            let text =
                format!("{error}\n`{}` inherits {} from the attribute on its block", member.name, inherited.join(", "));
            Wrong::Own(Error::new(error.span(), text))
        }
    }
}

fn is_async(function: &Function) -> bool {
    function.sig.asyncness.is_some() || (returns_future(&function.sig) && boxed::is_boxed(&function.body))
}

/// Refuses a function that is not `async` and returns a future, because its callers would not see that it is unprotected.
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

/// Refuses a declaration of a future: each `impl` has a body of its own, which the trait's attribute does not see.
fn declaration(own: &Own, signature: &Signature) -> Result<()> {
    let is_plain = signature.asyncness.is_none() && !returns_future(signature);
    match own {
        Own::Skip => Ok(()),
        Own::Nothing if is_plain => Ok(()),
        Own::Nothing | Own::Args(_) => {
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
    struct Futures(bool);
    impl Visit<'_> for Futures {
        fn visit_path_segment(&mut self, segment: &PathSegment) {
            self.0 |= segment.ident.to_string().ends_with("Future");
            visit::visit_path_segment(self, segment);
        }
    }
    let mut futures = Futures(false);
    futures.visit_return_type(&signature.output);
    futures.0
}

/// Locates tokens at `place`. Names keep their hygiene.
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
