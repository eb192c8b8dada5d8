//! The `#[idempotent]` attribute. Use it from the facade `idempotent-rs`, or with `idempotent-core` and
//! `crate = ::idempotent_core`.
//!
//! The macro works in three steps: `parse` reads the arguments, `normalise` resolves their meaning, and `expand`
//! generates code. Generated code calls only the core's hidden `__private` module.
#![cfg_attr(docsrs, feature(doc_cfg))]
mod batch;
mod block;
mod expand;
mod item;
mod names;
mod normalise;
mod owned;
mod parse;
mod reserved;
mod suggest;
mod text;
mod transaction;
mod units;

use proc_macro::TokenStream;
use quote::quote;

use self::item::AnnotatedFunction;
use self::normalise::AttributePlan;

// `tests/integration` runs the examples. As doc tests of this crate, they would need dev-dependencies that cargo builds
// for the host a second time, together with the whole facade.
#[cfg_attr(not(doctest), doc = include_str!("docs/idempotent.md"))]
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    let (args, item) = (args.into(), proc_macro2::TokenStream::from(item));
    if block::is_block(&item) {
        return block::attribute(args, item).into();
    }
    match attribute(args, item.clone()) {
        Ok(tokens) => tokens.into(),
        Err(error) => {
            let (error, kept) = (error.to_compile_error(), item::kept(item));
            quote!(#error #kept).into()
        }
    }
}

fn attribute(args: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> syn::Result<proc_macro2::TokenStream> {
    let function = AnnotatedFunction::of(item)?;
    self::function(AttributePlan::new(syn::parse2(args)?)?, function)
}

fn function(mut plan: AttributePlan, mut function: AnnotatedFunction) -> syn::Result<proc_macro2::TokenStream> {
    if let Some(mut transaction) = plan.transaction.take() {
        transaction.take(&mut function).map_err(|error| plan.explain("transaction", error))?;
        plan.transaction = Some(transaction);
    }
    if let Some(mut batch) = plan.batch.take() {
        batch.resolve(&mut function)?;
        plan.batch = Some(batch);
    }
    names::check(&plan, &function)?;
    names::generic::check(&plan, &function)?;
    owned::check(&plan, &function)?;
    expand::expand(&plan, function)
}
