//! The attribute on an `impl` or a trait: each `async fn` of the block gets the arguments of the block and its own.
mod member;
mod parse;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Error, Result};

use self::member::ExpandedItem;
pub(crate) use self::parse::is_block;
use self::parse::{AnnotatedBlock, BlockItem};
use crate::parse::AttributeArgs;

/// Expands the attribute on a block.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    match syn::parse2::<AnnotatedBlock>(item.clone()) {
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
fn expand(args: &TokenStream, block: &mut AnnotatedBlock) -> Result<()> {
    let shared = shared(args);
    let (mut errors, mut protected) = (BlockErrors::default(), 0);
    for item in &mut block.items {
        let expanded = match &shared {
            Ok(shared) => member::expand(args, shared, &block.head, item),
            Err(_) => Ok(ExpandedItem::Unchanged),
        };
        match expanded {
            Ok(ExpandedItem::Protected(tokens)) => {
                protected += 1;
                *item = BlockItem::Other(tokens);
            }
            Ok(ExpandedItem::Checked(tokens)) => *item = BlockItem::Other(tokens),
            Ok(ExpandedItem::Declared(check)) => block.beside.extend(check),
            Ok(ExpandedItem::Unchanged) => item.strip(),
            Err(error) => {
                item.strip();
                errors.push(error);
            }
        }
    }
    shared?;
    errors.0.map_or(Ok(()), Err)?;
    if protected == 0 {
        let text = "this block contains no `async fn` that `#[idempotent]` could protect: leave the attribute out";
        return Err(Error::new(block.keyword.span(), text));
    }
    Ok(())
}

/// Parses the arguments of the block.
fn shared(args: &TokenStream) -> Result<AttributeArgs> {
    let shared: AttributeArgs = syn::parse2(args.clone())?;
    match (&shared.skip, &shared.batch) {
        (Some(skip), _) => Err(Error::new(skip.span(), "`skip` belongs on a function of the block, not on the block")),
        (None, Some(batch)) => {
            let text = "`batch` names a parameter of one function: set it on that function, not on the block";
            Err(Error::new(batch.list.span(), text))
        }
        (None, None) => Ok(shared),
    }
}

/// The combined errors of all functions. A mistake in the arguments of the block is one error, even if many functions
/// inherit it.
#[derive(Default)]
struct BlockErrors(Option<Error>);

impl BlockErrors {
    fn push(&mut self, error: member::MemberError) {
        let known =
            |error: &Error, all: &Error| all.clone().into_iter().any(|one| one.to_string() == error.to_string());
        let error = match error {
            member::MemberError::Shared(error) if self.0.as_ref().is_some_and(|all| known(&error, all)) => return,
            member::MemberError::Shared(error) | member::MemberError::Own(error) => error,
        };
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }
}

impl ToTokens for AnnotatedBlock {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.head.to_tokens(tokens);
        self.brace.surround(tokens, |tokens| {
            self.inner.iter().for_each(|attr| attr.to_tokens(tokens));
            self.items.iter().for_each(|item| item.to_tokens(tokens));
        });
        self.beside.to_tokens(tokens);
    }
}

#[cfg(test)]
mod tests;
