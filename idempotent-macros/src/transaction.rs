//! The argument `transaction = tx`: a parameter that callers do not pass. The run begins the transaction, lends it to
//! the body and ends it.
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Error, Expr, ExprCall, ExprPath, FnArg, Ident, Lifetime, Pat, Result, Type};

use crate::item::AnnotatedFunction;
use crate::suggest::did_you_mean;

/// The value of `transaction`, and the parameter that it names.
pub(crate) struct TransactionParameter {
    name: Ident,
    leased: bool,
    /// The pattern of the parameter, and the type that its reference points to.
    parameter: Option<(Pat, Type)>,
}

impl TransactionParameter {
    pub(crate) fn of(value: &Expr) -> Result<Self> {
        let (name, leased) = match value {
            Expr::Call(ExprCall { func, args, .. }) if word(func).is_some_and(|word| word == "leased") => {
                (args.first().filter(|_| args.len() == 1).and_then(word), true)
            }
            value => (word(value), false),
        };
        let name = name.filter(|name| *name != "self").ok_or_else(|| {
            Error::new_spanned(
                value,
                "`transaction` names a parameter, `transaction = tx`, or `transaction = leased(tx)` for a claim by a lease \
                 before it",
            )
        })?;
        Ok(Self { name: name.clone(), leased, parameter: None })
    }

    /// Removes the parameter from the function's signature.
    pub(crate) fn take(&mut self, function: &mut AnnotatedFunction) -> Result<()> {
        if function.sig.asyncness.is_none() {
            // In the rewritten function, callers would have to name the transaction's lifetimes.
            let text = "`transaction` does not work where `#[async_trait]` has run: let the trait's function call a free \
                        one, and put `#[idempotent]` on that";
            return Err(Error::new(self.name.span(), text));
        }
        let (mut found, mut left, mut names) = (None, Punctuated::new(), Vec::new());
        for input in std::mem::take(&mut function.sig.inputs) {
            match named(&input) {
                Some(name) if *name == self.name => found = Some(input),
                name => {
                    names.extend(name.map(|name| name.unraw().to_string()));
                    left.push(input);
                }
            }
        }
        function.sig.inputs = left;
        let Some(FnArg::Typed(parameter)) = found else { return Err(self.missing(&names)) };
        let Type::Reference(reference) = &*parameter.ty else { return Err(not_a_reference(&parameter.ty)) };
        if reference.mutability.is_none() {
            return Err(not_a_reference(&parameter.ty));
        }
        let mut ty = (*reference.elem).clone();
        StaticLifetimes.visit_type_mut(&mut ty);
        self.parameter = Some(((*parameter.pat).clone(), ty));
        Ok(())
    }

    fn missing(&self, names: &[String]) -> Error {
        let meant = did_you_mean(&self.name.unraw().to_string(), names.iter().map(String::as_str));
        let text = format!(
            "no parameter named `{0}`{meant}; add `{0}: &mut Transaction<'_, Db>`, which callers do not pass: the run \
             begins it",
            self.name
        );
        Error::new(self.name.span(), text)
    }

    /// Generates the statement that binds the call to a transaction.
    pub(crate) fn setup(&self, private: &TokenStream) -> TokenStream {
        let Some((_, ty)) = &self.parameter else { return TokenStream::new() };
        let mode = if self.leased { quote!(Leased) } else { quote!(Inside) };
        let site = proc_macro2::Span::mixed_site();
        let within = quote_spanned!(site.located_at(ty.span())=> #private::within::<#ty>);
        quote_spanned!(site=>
            let (__idempotent_call, __idempotent_lender) =
                #within(__idempotent_with.as_ref(), __idempotent_call, #private::ClaimMode::#mode);
        )
    }

    /// Generates the statements that lend the transaction to the body.
    pub(crate) fn lend(&self) -> TokenStream {
        let Some((pat, ty)) = &self.parameter else { return TokenStream::new() };
        quote_spanned!(proc_macro2::Span::mixed_site()=>
            let mut __idempotent_lent = __idempotent_lender.lend();
            let #pat: &mut #ty = &mut __idempotent_lent;
        )
    }
}

/// Returns the name of a parameter.
fn named(input: &FnArg) -> Option<&Ident> {
    match input {
        FnArg::Typed(arg) => match &*arg.pat {
            Pat::Ident(pat) => Some(&pat.ident),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    }
}

fn word(value: &Expr) -> Option<&Ident> {
    match value {
        Expr::Path(ExprPath { path, qself: None, .. }) => path.get_ident(),
        _ => None,
    }
}

fn not_a_reference(ty: &Type) -> Error {
    Error::new_spanned(ty, "the run owns and commits the transaction: take `&mut Transaction<'_, Db>`")
}

/// Replaces all lifetimes by `'static`, because the run owns its transaction.
struct StaticLifetimes;

impl VisitMut for StaticLifetimes {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        lifetime.ident = Ident::new("static", lifetime.ident.span());
        visit_mut::visit_lifetime_mut(self, lifetime);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use quote::ToTokens;

    use super::*;

    fn taken(argument: &str, function: &str) -> Result<String> {
        let mut function = AnnotatedFunction::of(function.parse().unwrap())?;
        let mut transaction = TransactionParameter::of(&syn::parse_str(argument)?)?;
        transaction.take(&mut function)?;
        let (_, ty) = transaction.parameter.unwrap();
        let text = format!("{} {} {}", transaction.leased, ty.to_token_stream(), function.sig.to_token_stream());
        Ok(text.replace(' ', ""))
    }

    #[test]
    fn the_parameter_is_removed_from_any_position_with_its_lifetimes() {
        for (argument, function, want) in [
            ("tx", "async fn f(tx: &mut Transaction<'_, Db>, a: A) {}", "falseTransaction<'static,Db>asyncfnf(a:A)"),
            ("leased(tx)", "async fn f(&self, tx: &mut Tx<'_>) {}", "trueTx<'static>asyncfnf(&self)"),
            ("r#tx", "async fn f(a: A, mut r#tx: &'a mut m::Tx, b: B) {}", "falsem::Txasyncfnf(a:A,b:B)"),
        ] {
            assert_eq!(taken(argument, function).unwrap(), want);
        }
    }

    #[test]
    fn an_invalid_parameter_is_refused_with_the_reason() {
        let free = "async fn f(order: Order, txn: &mut Tx<'_>, owned: Tx<'static>, shared: &Tx<'_>) {}";
        for (argument, want) in [
            ("tx", "no parameter named `tx`; did you mean `txn`?"),
            ("leased(nothing)", "no parameter named `nothing`; add `nothing: &mut Transaction<'_, Db>`"),
            ("owned", "the run owns and commits the transaction"),
            ("shared", "the run owns and commits the transaction"),
            ("\"tx\"", "`transaction` names a parameter"),
            ("self.tx", "`transaction` names a parameter"),
            ("leased(a, b)", "`transaction = leased(tx)` for a claim by a lease"),
        ] {
            let error = taken(argument, free).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{argument}: {error}");
        }
        let boxed = taken("tx", "fn f(tx: &mut Tx) -> B { Box::pin(async move { 1 }) }").err().unwrap();
        assert!(boxed.to_string().contains("`#[async_trait]`"), "{boxed}");
    }
}
