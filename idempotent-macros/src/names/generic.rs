//! Generic functions, whose default scope is the same for all types.
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::Visit;
use syn::{Error, FnArg, Pat, Result, TypeImplTrait};

use crate::item::AnnotatedFunction;
use crate::normalise::{AttributePlan, KeySource};

/// Refuses a generic function without a scope, because the default scope is the function's name, which all types share.
/// The type of the executor in `with` does not matter.
pub(crate) fn check(plan: &AttributePlan, function: &AnnotatedFunction) -> Result<()> {
    if plan.scope.is_some() || matches!(plan.by, KeySource::Token(_)) {
        return Ok(());
    }
    let with = plan.with.to_token_stream();
    let is_executor = |arg: &&FnArg| match arg {
        FnArg::Typed(arg) => matches!(&*arg.pat, Pat::Ident(pat) if mentions(with.clone(), &pat.ident)),
        FnArg::Receiver(_) => false,
    };
    let (executor, others): (Vec<_>, Vec<_>) = function.sig.inputs.iter().partition(is_executor);
    let in_any = |args: &[&FnArg], param: &Ident| args.iter().any(|arg| mentions(arg.to_token_stream(), param));
    let generics = &function.sig.generics;
    let params =
        generics.type_params().map(|param| &param.ident).chain(generics.const_params().map(|param| &param.ident));
    let mut named = params.filter(|param| in_any(&others, param) || !in_any(&executor, param));
    let mut opaque = ImplTraitFinder(None);
    others.iter().for_each(|arg| opaque.visit_fn_arg(arg));
    let Some(generic) = named.next().map(ToTokens::to_token_stream).or(opaque.0) else { return Ok(()) };
    let name = &function.sig.ident;
    let text = format!(
        "`{name}` is generic, and its name is the scope: with another type, an equal key would pass for a duplicate. Say \
         `scope = \"…\"` if all types share their keys, or a scope for each type, such as `scope = T::NAME`"
    );
    Err(Error::new_spanned(generic, text))
}

fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Ident(ident) => ident == *name,
        _ => false,
    })
}

/// A visitor that finds the first `impl Trait` among the arguments.
struct ImplTraitFinder(Option<TokenStream>);

impl Visit<'_> for ImplTraitFinder {
    fn visit_type_impl_trait(&mut self, opaque: &TypeImplTrait) {
        self.0.get_or_insert_with(|| opaque.to_token_stream());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_generics_that_may_distinguish_calls_need_a_scope() {
        let refused = |args: &str, function: &str| {
            let plan = AttributePlan::new(syn::parse_str(args).unwrap()).unwrap();
            let function = AnnotatedFunction::of(function.parse().unwrap()).unwrap();
            check(&plan, &function).is_err()
        };
        for function in [
            "async fn f<E>(id: u8, event: E) {}",
            "async fn f<E: Event>(id: u8) {}",
            "async fn f<const N: usize>(id: [u8; N]) {}",
            "async fn f(id: impl KeyPart) {}",
            "async fn f(id: u8, all: Vec<Box<impl Event>>) {}",
            "async fn f<E>(e: &E, id: &E) {}",
        ] {
            assert!(refused("key = id, with = e", function), "{function}");
            assert!(!refused("key = id, with = e, scope = E::NAME", function), "{function}");
        }
        for function in [
            "async fn f(id: u8) {}",
            "async fn f<'a>(id: &'a str) {}",
            "async fn f(e: impl AsRef<Executor>, id: u8) {}",
            "async fn f<E: AsRef<Executor>>(e: &E, id: u8) {}",
        ] {
            assert!(!refused("key = id, with = *e", function), "{function}");
        }
    }
}
