//! Checks that a recorded result, and all values that a detached run holds, are not borrowed from the call.
//!
//! rustc refuses the cases that these checks miss, with less helpful messages.
use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::visit::{self, Visit};
use syn::{
    Block, Error, Expr, ExprPath, FnArg, GenericArgument, Item, Macro, ParenthesizedGenericArguments, Pat,
    PathArguments, Receiver, ReceiverKind, Result, ReturnType, Stmt, Type, TypeFnPtr, TypeImplTrait, TypeReference,
    TypeTraitObject, parse_quote,
};

use crate::expand::boxed;
use crate::item::AnnotatedFunction;
use crate::names::PatternBindings;
use crate::normalise::AttributePlan;

pub(crate) fn check(plan: &AttributePlan, function: &AnnotatedFunction) -> Result<()> {
    let Some(handler) = WrittenHandler::of(function) else { return Ok(()) };
    // A custom codec or strategy may be able to keep a reference.
    if plan.codec.is_none()
        && plan.reply.is_none()
        && let Some(borrowed) = handler.returned.as_ref().and_then(value).and_then(borrowed_value)
    {
        let text = "return an owned value: a recorded result is replayed to later calls";
        return Err(Error::new_spanned(borrowed, text));
    }
    if plan.detach { function.sig.inputs.iter().try_for_each(|arg| handler.may_hold(arg)) } else { Ok(()) }
}

/// The function as written, even if `#[async_trait]` has rewritten it.
struct WrittenHandler {
    returned: Option<Type>,
    body: Vec<Stmt>,
    /// The name of `self` in the body.
    this: String,
}

impl WrittenHandler {
    /// Returns `None` if the body cannot be parsed. rustc then reports the error.
    fn of(function: &AnnotatedFunction) -> Option<Self> {
        if function.sig.asyncness.is_none() {
            return boxed::handler(&function.body).map(|(returned, body, this)| {
                let this = this.map_or_else(|| "self".into(), |this| this.to_string());
                Self { returned: Some(returned), body, this }
            });
        }
        let returned = match &function.sig.output {
            ReturnType::Default => None,
            ReturnType::Type(_, ty) => Some((**ty).clone()),
        };
        let body = Block::parse_within.parse2(function.body.clone()).ok()?;
        Some(Self { returned, body, this: "self".into() })
    }

    /// Refuses an argument that a detached run would borrow. An argument that the body does not mention, like an
    /// executor for `with`, is not a part of the run.
    fn may_hold(&self, arg: &FnArg) -> Result<()> {
        let (ty, name, instead) = match arg {
            FnArg::Receiver(this) => (
                receiver(this),
                self.this.clone(),
                "`self: Arc<Self>`, or an owned argument of the values that it needs",
            ),
            FnArg::Typed(arg) => match &*arg.pat {
                Pat::Ident(pat) => ((*arg.ty).clone(), pat.ident.unraw().to_string(), "an owned value or an `Arc`"),
                _ => return Ok(()),
            },
        };
        if !is_borrowed(&ty) || !self.uses(&name) {
            return Ok(());
        }
        let text = format!(
            "`detach` needs owned arguments, because the run continues after the call is dropped: take {instead}"
        );
        Err(Error::new_spanned(arg, text))
    }

    /// Returns whether the body uses the name. Returns false if the body also binds the name to another value.
    fn uses(&self, name: &str) -> bool {
        let mut bound = PatternBindings::default();
        let mut mentions = NameFinder { name, found: false };
        for statement in &self.body {
            bound.visit_stmt(statement);
            mentions.visit_stmt(statement);
        }
        mentions.found && !bound.texts().iter().any(|bound| bound == name)
    }
}

/// Returns the type of `self`, including the shorthand forms.
fn receiver(this: &Receiver) -> Type {
    match &this.kind {
        ReceiverKind::Typed(_, ty) => (**ty).clone(),
        ReceiverKind::Reference(_, lifetime, _) => parse_quote!(&#lifetime Self),
        _ => parse_quote!(Self),
    }
}

/// Returns `T` of `Result<T, E>`.
fn value(returned: &Type) -> Option<&Type> {
    match returned {
        Type::Group(group) => value(&group.elem),
        Type::Paren(paren) => value(&paren.elem),
        Type::Path(path) if path.path.segments.last()?.ident == "Result" => argument(returned),
        _ => None,
    }
}

/// Returns the first type argument of `Path<…>`.
fn argument(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Returns the reference if a value is one, or certainly contains one.
fn borrowed_value(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(_) => Some(ty),
        Type::Group(group) => borrowed_value(&group.elem),
        Type::Paren(paren) => borrowed_value(&paren.elem),
        Type::Tuple(tuple) => tuple.elems.iter().find_map(borrowed_value),
        Type::Path(path) => {
            let last = &path.path.segments.last()?.ident;
            let holds = ["Box", "Option", "Vec"].iter().any(|name| last == name);
            if holds { argument(ty).and_then(borrowed_value) } else { None }
        }
        _ => None,
    }
}

/// Returns whether the type contains a reference that ends with the call. The lifetimes of other types are unknown.
fn is_borrowed(ty: &Type) -> bool {
    let mut references = ReferenceFinder(false);
    references.visit_type(ty);
    references.0
}

struct ReferenceFinder(bool);

impl Visit<'_> for ReferenceFinder {
    fn visit_type_reference(&mut self, ty: &TypeReference) {
        self.0 |= ty.lifetime.as_ref().is_none_or(|lifetime| lifetime.ident != "static");
        visit::visit_type_reference(self, ty);
    }

    // Function types and bounds over references borrow nothing.
    fn visit_parenthesized_generic_arguments(&mut self, _: &ParenthesizedGenericArguments) {}

    fn visit_type_fn_ptr(&mut self, _: &TypeFnPtr) {}

    fn visit_type_impl_trait(&mut self, _: &TypeImplTrait) {}

    fn visit_type_trait_object(&mut self, _: &TypeTraitObject) {}
}

/// Returns whether the expression mentions the name.
pub(crate) fn mentions(expr: &Expr, name: &str) -> bool {
    let mut mentions = NameFinder { name, found: false };
    mentions.visit_expr(expr);
    mentions.found
}

struct NameFinder<'a> {
    name: &'a str,
    found: bool,
}

impl NameFinder<'_> {
    /// Looks for the name in a macro's tokens. In `x.name`, `name = 1` and `name: 1` the name has another meaning.
    fn look(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut field = false;
        while let Some(token) = tokens.next() {
            match &token {
                TokenTree::Ident(ident) if ident.unraw() == self.name => {
                    let label = matches!(tokens.peek(), Some(TokenTree::Punct(next))
                        if next.as_char() == ':' || (next.as_char() == '=' && next.spacing() == Spacing::Alone));
                    self.found |= !field && !label;
                }
                TokenTree::Group(group) => self.look(group.stream()),
                _ => {}
            }
            field = matches!(&token, TokenTree::Punct(last) if last.as_char() == '.');
        }
    }
}

impl Visit<'_> for NameFinder<'_> {
    fn visit_expr_path(&mut self, path: &ExprPath) {
        self.found |= path.path.get_ident().is_some_and(|ident| ident.unraw() == self.name);
    }

    fn visit_macro(&mut self, mac: &Macro) {
        self.look(mac.tokens.clone());
    }

    fn visit_item(&mut self, _: &Item) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(args: &str, function: &str) -> String {
        let plan = AttributePlan::new(syn::parse_str(args).unwrap()).unwrap();
        let function = AnnotatedFunction::of(function.parse().unwrap()).unwrap();
        check(&plan, &function).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_borrowed_value_is_refused_unless_a_codec_or_a_strategy_may_keep_it() {
        for borrowed in ["&str", "&'static str", "Option<&[u8]>", "(u8, &str)", "std::vec::Vec<&'a T>"] {
            let function = format!("async fn f<'a>(k: &'a str) -> std::result::Result<{borrowed}, E> {{ g(k) }}");
            assert!(error("key = k", &function).starts_with("return an owned value"), "{borrowed}");
            assert_eq!(error("key = k, codec = Discard", &function), "");
            assert_eq!(error("key = k, reply = R", &function), "");
        }
        for owned in ["Result<String, &str>", "Result<Cow<'a, str>, E>", "Result<PhantomData<&str>, E>", "Disposition"]
        {
            assert_eq!(error("key = k", &format!("async fn f(k: &str) -> {owned} {{ g(k) }}")), "", "{owned}");
        }
    }

    #[test]
    fn a_detached_run_that_borrows_is_refused_on_the_argument() {
        for (arguments, body) in [
            ("&self, k: u8", "self.f(k)"),
            ("self: &Arc<Self>, k: u8", "g!(self.f(k))"),
            ("k: &str", "g(k)"),
            ("k: &str", "assert!(k == b)"),
            ("k: u8, text: Option<&str>", "g(text).await"),
        ] {
            let function = format!("async fn f({arguments}) -> R {{ {body} }}");
            assert!(error("key = k, detach", &function).starts_with("`detach` needs owned arguments"), "{function}");
            assert_eq!(error("key = k", &function), "");
        }
        for (arguments, body) in [
            ("self: Arc<Self>, k: u8", "self.f(k)"),
            ("e: &Executor, k: u8", "g(k.e)"),
            ("k: &'static str, f: fn(&str), g: Box<dyn Fn(&str)>", "f(k); g(k)"),
            ("k: &str", "let k = 1; g(k)"),
            ("k: &str", "info!(k = 1, x.k, S { k: 1 })"),
            ("f: impl Fn(&str), k: u8", "f(k)"),
        ] {
            let function = format!("async fn f({arguments}) -> R {{ {body} }}");
            assert_eq!(error("key = k, detach", &function), "", "{function}");
        }
    }

    #[test]
    fn a_function_rewritten_by_async_trait_is_checked_as_written() {
        let function = |ret: &str| {
            format!(
                "fn f<'a>(&'a self, k: u8) -> Pin<Box<dyn Future>> {{ Box::pin(async move {{
                    let __self = self; let k = k; let __ret: {ret} = {{ __self.g(k) }}; __ret }}) }}"
            )
        };
        assert!(error("key = k", &function("Result<&str, E>")).starts_with("return an owned value"));
        assert_eq!(error("key = k", &function("Result<u8, E>")), "");
        assert!(error("key = k, detach", &function("Result<u8, E>")).starts_with("`detach` needs"));
    }
}
