//! `#[idempotent]`.
mod expand;
mod item;
mod names;
mod normalise;
mod parse;
mod reserved;
mod suggest;
mod text;
mod units;

use proc_macro::TokenStream;
use quote::quote;

use self::item::Function;
use self::normalise::Plan;

/// x
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    let (args, item) = (args.into(), proc_macro2::TokenStream::from(item));
    match attribute(args, item.clone()) {
        Ok(tokens) => tokens.into(),
        Err(error) => {
            let (error, kept) = (error.to_compile_error(), item::kept(item));
            quote!(#error #kept).into()
        }
    }
}

fn attribute(args: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> syn::Result<proc_macro2::TokenStream> {
    let function = Function::of(item)?;
    let plan = Plan::new(syn::parse2(args)?)?;
    names::check(&plan, &function)?;
    expand::expand(&plan, function)
}
