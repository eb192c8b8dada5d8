//! The arguments as the key: every name that the function's patterns bind.
use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::{Error, Expr, Result};

use super::{PatternBindings, is_local};
use crate::item::AnnotatedFunction;
use crate::owned::mentions;

/// Returns the names of the arguments that form the key if no key is given. The executor that `with` names and `self`
/// do not belong to the call's identity.
pub(crate) fn of(function: &AnnotatedFunction, with: Option<&Expr>, by: Span) -> Result<Vec<Ident>> {
    let found = PatternBindings::of_arguments(function);
    let mut names: Vec<Ident> = Vec::new();
    for name in found.names {
        let text = name.unraw().to_string();
        let executor = with.is_some_and(|with| mentions(with, &text));
        // A unit struct in a pattern looks like a name.
        if is_local(&text) && !executor && !names.contains(&name) {
            names.push(name);
        }
    }
    if found.open {
        let text = "a macro in a pattern may bind anything: name the arguments that count, `key = (a, b)`";
        return Err(Error::new(by, text));
    }
    if names.is_empty() {
        let text = "no argument distinguishes two calls, so only the first in a window would run: `by = param` needs \
                    arguments with names, or a `key`";
        return Err(Error::new(by, text));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(function: &str, with: Option<&str>) -> String {
        let function = AnnotatedFunction::of(function.parse().unwrap()).unwrap();
        let with = with.map(|with| syn::parse_str(with).unwrap());
        match of(&function, with.as_ref(), Span::call_site()) {
            Ok(names) => names.iter().map(Ident::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_bound_name_counts_except_self_and_the_executor() {
        for (function, with, want) in [
            ("async fn f(order: Order, n: u8) {}", None, "order n"),
            ("async fn f(&self, mut order: Order, _: u8) {}", None, "order"),
            ("async fn f((a, B { c, d: e, .. }): X, [r#in, ..]: Y, Unit: Unit) {}", None, "a c e r#in"),
            ("async fn f(State(app): State<App>, Json(order): Json<Order>) {}", Some("app.idem"), "order"),
            ("async fn f(e: &Executor, order: Order) {}", Some("e"), "order"),
            ("async fn f(order: Order) {}", Some("self.idem"), "order"),
        ] {
            assert_eq!(told(function, with), want, "{function}");
        }
        let boxed = "fn f<'a>(&'a self, id: u8, __arg1: X) -> P { Box::pin(async move { let __self = self; let id = id; \
                     let (a, b) = __arg1; let __ret: R = { 1 }; __ret }) }";
        assert_eq!(told(boxed, None), "id a b");
    }

    #[test]
    fn a_function_without_usable_arguments_is_refused_with_the_remedy() {
        for (function, with, want) in [
            ("async fn f() {}", None, "no argument distinguishes two calls"),
            ("async fn f(&self, _: u8) {}", None, "no argument distinguishes two calls"),
            ("async fn f(e: &Executor) {}", Some("e"), "no argument distinguishes two calls"),
            ("async fn f(m!(x): X, b: u8) {}", None, "name the arguments that count"),
        ] {
            let told = told(function, with);
            assert!(told.contains(want), "{function}: {told}");
        }
    }
}
