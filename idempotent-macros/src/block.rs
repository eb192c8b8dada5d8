//! The attribute on an `impl` or a trait: each `async fn` in there gets the arguments of the block and its own.
mod member;
mod parse;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Error, Result};

pub(crate) use self::parse::is_block;
use self::parse::{Block, Item};
use crate::parse::Args;

/// Expands the attribute on a block.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    match syn::parse2::<Block>(item.clone()) {
        Ok(mut block) => {
            let error = expand(&args, &mut block).err().map(|error| error.to_compile_error());
            quote!(#error #block)
        }
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#error #item)
        }
    }
}

/// Replaces each item by its expansion. An item with an error stays as the user wrote it, without the attribute.
fn expand(args: &TokenStream, block: &mut Block) -> Result<()> {
    let shared = shared(args);
    let (mut errors, mut protected) = (Errors::default(), 0);
    for item in &mut block.items {
        let expanded = match &shared {
            Ok(shared) => member::expand(args, shared, item),
            Err(_) => Ok(None),
        };
        match expanded {
            Ok(Some(tokens)) => {
                protected += 1;
                *item = Item::Other(tokens);
            }
            Ok(None) => item.strip(),
            Err(error) => {
                item.strip();
                errors.push(error);
            }
        }
    }
    shared?;
    errors.0.map_or(Ok(()), Err)?;
    if protected == 0 {
        let text = "no `async fn` in here that `#[idempotent]` could protect: leave the attribute out";
        return Err(Error::new(block.keyword.span(), text));
    }
    Ok(())
}

/// Parses the arguments of the block.
fn shared(args: &TokenStream) -> Result<Args> {
    let shared: Args = syn::parse2(args.clone())?;
    match &shared.skip {
        Some(skip) => Err(Error::new(skip.span(), "`skip` goes on a function of the block, and not on the block")),
        None => Ok(shared),
    }
}

/// The errors of all functions. One mistake in the arguments of the block is one error, however many functions have it.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn push(&mut self, error: member::Wrong) {
        let known =
            |error: &Error, all: &Error| all.clone().into_iter().any(|one| one.to_string() == error.to_string());
        let error = match error {
            member::Wrong::Shared(error) if self.0.as_ref().is_some_and(|all| known(&error, all)) => return,
            member::Wrong::Shared(error) | member::Wrong::Own(error) => error,
        };
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }
}

impl ToTokens for Block {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.head.to_tokens(tokens);
        self.brace.surround(tokens, |tokens| {
            self.inner.iter().for_each(|attr| attr.to_tokens(tokens));
            self.items.iter().for_each(|item| item.to_tokens(tokens));
        });
    }
}

#[cfg(test)]
mod tests;
