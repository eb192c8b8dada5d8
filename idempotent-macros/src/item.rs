//! The annotated item: an `async fn` with its body as tokens.
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, Block, Error, Item, Result, Signature, Stmt, Token, Visibility, braced, token};

/// A function. The body is not parsed, because rustc reports its errors better.
#[derive(Clone)]
pub(crate) struct AnnotatedFunction {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) brace: token::Brace,
    /// The `#![…]` attributes at the start of the body.
    pub(crate) inner: Vec<Attribute>,
    pub(crate) body: TokenStream,
}

impl Parse for AnnotatedFunction {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (attrs, vis, sig) = (input.call(Attribute::parse_outer)?, input.parse()?, input.parse::<Signature>()?);
        if input.peek(Token![;]) {
            let text = "a declaration has nothing to run: `#[idempotent]` goes on the impl's function, or on a \
                        default body";
            return Err(Error::new(sig.ident.span(), text));
        }
        let content;
        let brace = braced!(content in input);
        Ok(Self { attrs, vis, sig, brace, inner: content.call(Attribute::parse_inner)?, body: content.parse()? })
    }
}

impl AnnotatedFunction {
    /// Parses the annotated item, and refuses every item except a function.
    pub(crate) fn of(item: TokenStream) -> Result<Self> {
        let function: Self = match syn::parse2(item.clone()) {
            Ok(function) => function,
            Err(error) => return Err(not_a_function(item).unwrap_or(error)),
        };
        if let Some(second) = function.attrs.iter().find(|attr| is_ours(attr)) {
            return Err(nested(second));
        }
        function.can_run_again()?;
        Ok(function)
    }

    /// Refuses `const fn`, `extern fn`, and a function that another `#[idempotent]` has rewritten.
    pub(crate) fn can_run_again(&self) -> Result<()> {
        if let Some(constness) = &self.sig.constness {
            return Err(only_functions(constness.span, "a `const fn`"));
        }
        if let Some(abi) = &self.sig.abi {
            return Err(only_functions(abi.span(), "an `extern fn`"));
        }
        if names_our_call(self.body.clone()) {
            let text = "another `#[idempotent]` already protects this function, from its `impl` or under another name: \
                        write `#[idempotent(…)]` on the function by that name, and outside `cfg_attr`";
            return Err(Error::new(self.sig.ident.span(), text));
        }
        Ok(())
    }

    pub(crate) fn has_receiver(&self) -> bool {
        self.sig.receiver().is_some()
    }

    /// Returns the error for a function without `async`.
    pub(crate) fn needs_async(&self) -> Error {
        let name = &self.sig.ident;
        let text = format!("`#[idempotent]` needs an async fn: write `async fn {name}`");
        Error::new(self.sig.fn_token.span, text)
    }
}

impl ToTokens for AnnotatedFunction {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attrs, vis, sig, brace, inner, body } = self;
        attrs.iter().for_each(|attr| attr.to_tokens(tokens));
        vis.to_tokens(tokens);
        sig.to_tokens(tokens);
        brace.surround(tokens, |tokens| {
            inner.iter().for_each(|attr| attr.to_tokens(tokens));
            body.to_tokens(tokens);
        });
    }
}

/// Returns the user's item for a failed expansion, so that one mistake does not cause "cannot find function" in other
/// places.
///
/// A second attribute is removed, since it would report the same error.
pub(crate) fn kept(item: TokenStream) -> TokenStream {
    match syn::parse2::<AnnotatedFunction>(item.clone()) {
        Ok(mut function) => {
            function.attrs.retain(|attr| !is_ours(attr));
            function.into_token_stream()
        }
        Err(_) => item,
    }
}

/// Returns the error for a second attribute.
pub(crate) fn nested(second: &Attribute) -> Error {
    let text = "nested `#[idempotent]`: the inner run would wait for the outer one, or be another key's; \
                give one attribute, and `key = (a, b)` for a key of several parts";
    Error::new_spanned(second, text)
}

/// Returns whether generated code is in this body: the path `__private::Call`.
fn names_our_call(body: TokenStream) -> bool {
    let mut in_private = false;
    body.into_iter().any(|token| match token {
        TokenTree::Group(group) => names_our_call(group.stream()),
        TokenTree::Ident(ident) => {
            let found = in_private && ident == "Call";
            in_private = ident == "__private";
            found
        }
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

pub(crate) fn is_ours(attr: &Attribute) -> bool {
    attr.path().segments.last().is_some_and(|last| last.ident == "idempotent")
}

fn only_functions(span: Span, what: &str) -> Error {
    Error::new(span, format!("`#[idempotent]` applies to an `async fn`, an `impl` block or a trait, not to {what}"))
}

/// Returns an error that names the kind of the item, if the kind is known.
fn not_a_function(item: TokenStream) -> Option<Error> {
    let statement = |item| Block::parse_within.parse2(item).ok()?.into_iter().next();
    let (span, what) = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Struct(item)) => (item.struct_token.span, "a struct"),
        Ok(Item::Enum(item)) => (item.enum_token.span, "an enum"),
        Ok(Item::Union(item)) => (item.union_token.span, "a union"),
        Ok(Item::Mod(item)) => (item.mod_token.span, "a module; put it on the functions in there"),
        Ok(Item::ForeignMod(item)) => (item.abi.span(), "an `extern` block"),
        Ok(Item::Verbatim(_)) | Err(_) => match statement(item)? {
            Stmt::Local(local) => (local.let_token.span, "a `let`; make the closure a function"),
            _ => return None,
        },
        Ok(Item::Fn(_)) => return None,
        Ok(other) => (other.span(), "this item"),
    };
    Some(only_functions(span, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_is_not_a_function_is_named_in_the_error() {
        for (source, want) in [
            ("struct S;", "not to a struct"),
            ("mod m {}", "not to a module"),
            ("const fn f() {}", "not to a `const fn`"),
            ("extern \"C\" fn f() {}", "not to an `extern fn`"),
            ("async fn f(&self);", "a declaration has nothing to run"),
            ("static S: u8 = 1;", "not to this item"),
            ("async fn f() { { ::idempotent::__private::Call::new() } }", "another `#[idempotent]` already protects"),
            ("#[idempotent(key = a)] async fn f() {}", "nested `#[idempotent]`"),
            ("#[idempotent::idempotent(key = a)] async fn f() {}", "nested `#[idempotent]`"),
        ] {
            let tokens = source.parse().unwrap_or_default();
            let error = AnnotatedFunction::of(tokens).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{source}: {error}");
        }
    }

    #[test]
    fn the_kept_item_has_no_second_attribute() {
        let tokens = "#[idempotent(key = a)] #[inline] async fn f() { #![allow(x)] 1 }".parse().unwrap_or_default();
        assert_eq!(kept(tokens).to_string(), "# [inline] async fn f () { # ! [allow (x)] 1 }");
    }
}
