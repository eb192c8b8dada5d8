//! The argument `batch = order in orders`: a function that handles many items, each with its own key.
mod second_list;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, FnArg, GenericArgument, Ident, Pat, PathArguments, Result, ReturnType, Token, Type};

use crate::item::AnnotatedFunction;
use crate::parse::AttributeArgs;
use crate::suggest::did_you_mean;

/// The value of `batch`: a name for an item, and the parameter with the items.
#[derive(Clone)]
pub(crate) struct BatchParameter {
    pub(crate) item: Ident,
    pub(crate) list: Ident,
    /// The pattern and type of the parameter, and the type of the answer to one item.
    pub(crate) types: Option<BatchTypes>,
}

#[derive(Clone)]
pub(crate) struct BatchTypes {
    pub(crate) pattern: Pat,
    pub(crate) list: Type,
    pub(crate) answers: Type,
    pub(crate) answer: Type,
}

impl Parse for BatchParameter {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let place = input.span();
        let parsed = |input: ParseStream<'_>| {
            let item: Ident = input.parse()?;
            input.parse::<Token![in]>()?;
            Ok(Self { item, list: input.parse()?, types: None })
        };
        let text = "`batch` names an item and the parameter with all items: `batch = order in orders`, and then \
                    `key = order.id`";
        parsed(input).map_err(|_: Error| Error::new(place, text))
    }
}

impl BatchParameter {
    /// Checks the other arguments: a batch is claimed and settled item by item, in one run of the body.
    pub(crate) fn check(&self, args: &AttributeArgs) -> Result<()> {
        let refuse = |span: Span, text: &str| Err(Error::new(span, text));
        if let Some(detach) = &args.detach {
            return refuse(detach.span(), "`detach` does not support `batch`: call the function in a separate task");
        }
        let by_key = |by: &Expr| matches!(by, Expr::Path(path) if path.path.is_ident("key"));
        for (value, text) in [
            (
                &args.transaction,
                "`transaction` does not work for a `batch`, because each item is claimed and settled on its own: call a \
                 function with `transaction` for each item",
            ),
            (
                &args.by.clone().filter(|by| !by_key(by)),
                "the items of a `batch` have keys: leave `by` out, and write `key = …`",
            ),
            (
                &args.on_in_flight.clone().filter(|value| matches!(value, Expr::Call(_))),
                "a `batch` does not wait for single items: leave `on_in_flight` out, and retry the items that are in flight",
            ),
            (
                &args
                    .on_store_error
                    .clone()
                    .filter(|value| matches!(value, Expr::Path(path) if path.path.is_ident("run_unprotected"))),
                "an item of a `batch` never runs unprotected: leave `on_store_error` out",
            ),
        ] {
            if let Some(value) = value {
                return Err(Error::new_spanned(value, text));
            }
        }
        Ok(())
    }

    /// Reads the types from the function's signature, in which the parameter becomes immutable: the body has its own
    /// binding.
    pub(crate) fn resolve(&mut self, function: &mut AnnotatedFunction) -> Result<()> {
        if function.sig.asyncness.is_none() {
            let text = "`batch` does not work where `#[async_trait]` has run: let the trait's function call a free one, and put \
                        `#[idempotent]` on that";
            return Err(Error::new(self.list.span(), text));
        }
        let (answers, answer) = match &function.sig.output {
            ReturnType::Type(_, ty) => (ty, element(ty)),
            ReturnType::Default => return Err(Error::new(function.sig.ident.span(), NO_ANSWERS)),
        };
        let Some(answer) = answer else { return Err(Error::new_spanned(answers, NO_ANSWERS)) };
        let (answers, answer) = ((**answers).clone(), answer.clone());
        let mut names = Vec::new();
        for input in &mut function.sig.inputs {
            let FnArg::Typed(arg) = input else { continue };
            let Pat::Ident(name) = &mut *arg.pat else { continue };
            if name.ident != self.list {
                names.push(name.ident.unraw().to_string());
                continue;
            }
            if element(&arg.ty).is_none() {
                let text =
                    "the items of a `batch` are a `Vec<…>`: the body gets a `Vec` of the items whose keys are free";
                return Err(Error::new_spanned(&arg.ty, text));
            }
            let pattern = Pat::Ident(name.clone());
            name.mutability = None;
            self.types =
                Some(BatchTypes { pattern, list: (*arg.ty).clone(), answers: answers.clone(), answer: answer.clone() });
        }
        if self.types.is_some() {
            return second_list::refuse(&self.list, function);
        }
        let meant = did_you_mean(&self.list.unraw().to_string(), names.iter().map(String::as_str));
        Err(Error::new(self.list.span(), format!("no parameter named `{}`{meant}", self.list)))
    }
}

const NO_ANSWERS: &str =
    "a `batch` returns a `Vec<…>` with one answer for each item, in order, e.g. `Vec<Result<(), Error>>`";

/// Returns `T` of `Vec<T>`.
fn element(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Vec")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(element)) if arguments.args.len() == 1 => Some(element),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use quote::ToTokens;

    use super::*;

    fn resolved(argument: &str, function: &str) -> Result<String> {
        let mut function = AnnotatedFunction::of(function.parse().unwrap())?;
        let mut batch: BatchParameter = syn::parse_str(argument)?;
        batch.resolve(&mut function)?;
        let types = batch.types.unwrap();
        let text = format!("{} {}", types.answer.to_token_stream(), function.sig.to_token_stream());
        Ok(text.replace(' ', ""))
    }

    #[test]
    fn the_types_come_from_the_signature() {
        for (argument, function, want) in [
            ("o in orders", "async fn f(orders: Vec<O>) -> Vec<R> {}", "Rasyncfnf(orders:Vec<O>)->Vec<R>"),
            (
                "o in orders",
                "async fn f(&self, mut orders: std::vec::Vec<O>) -> Vec<Result<A, B>> {}",
                "Result<A,B>asyncfnf(&self,orders:std::vec::Vec<O>)->Vec<Result<A,B>>",
            ),
        ] {
            assert_eq!(resolved(argument, function).unwrap(), want);
        }
    }

    #[test]
    fn an_invalid_batch_is_refused_with_the_reason() {
        for (argument, function, want) in [
            ("orders", "async fn f(orders: Vec<O>) -> Vec<R> {}", "`batch = order in orders`"),
            ("(a, b) in orders", "async fn f(orders: Vec<O>) -> Vec<R> {}", "`batch = order in orders`"),
            ("o in order", "async fn f(orders: Vec<O>) -> Vec<R> {}", "did you mean `orders`?"),
            ("o in orders", "async fn f(orders: &[O]) -> Vec<R> {}", "are a `Vec<…>`"),
            ("o in orders", "async fn f(orders: Vec<O>) -> Result<(), E> {}", "one answer for each item"),
            ("o in orders", "async fn f(orders: Vec<O>) {}", "one answer for each item"),
            ("o in orders", "fn f(orders: Vec<O>) -> Vec<R> { Box::pin(async move { 1 }) }", "`#[async_trait]`"),
        ] {
            let error = resolved(argument, function).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{argument}: {error}");
        }
    }
}
