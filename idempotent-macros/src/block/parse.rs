//! Parsing of an `impl` or a trait into its items. Bodies of functions are not parsed, so rustc reports their errors.
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, ImplItem, Result, Signature, Token, TraitItem, Visibility, braced, token};

use crate::item::{AnnotatedFunction, is_ours};

/// An `impl` or a trait.
pub(crate) struct AnnotatedBlock {
    /// The tokens before the braces.
    pub(crate) head: TokenStream,
    /// `impl` or `trait`.
    pub(crate) keyword: Ident,
    pub(crate) brace: token::Brace,
    pub(crate) inner: Vec<Attribute>,
    pub(crate) items: Vec<BlockItem>,
    /// Items after the block.
    pub(crate) beside: TokenStream,
}

/// An item of an `impl` or a trait.
pub(crate) enum BlockItem {
    Function(Box<AnnotatedFunction>),
    /// A function of a trait without a body.
    Declaration(Vec<Attribute>, Box<Signature>, Token![;]),
    /// A macro that may expand to functions.
    Macro(Vec<Attribute>, TokenStream),
    Other(TokenStream),
}

/// Returns whether these tokens begin an `impl` or a trait.
pub(crate) fn is_block(item: &TokenStream) -> bool {
    keyword(item).is_some()
}

fn keyword(item: &TokenStream) -> Option<Ident> {
    let words = item.clone().into_iter().filter_map(|token| match token {
        TokenTree::Ident(ident) => Some(ident),
        _ => None,
    });
    let mut words = words.skip_while(|word| ["pub", "unsafe", "default", "auto"].iter().any(|before| word == before));
    words.next().filter(|word| word == "impl" || word == "trait")
}

impl Parse for AnnotatedBlock {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let keyword = keyword(&input.fork().parse()?).ok_or_else(|| input.error("expected `impl` or `trait`"))?;
        let mut head = TokenStream::new();
        // A brace group before the last one is a constant, as in `impl Trait<{ N }> for S`.
        while !(input.peek(token::Brace) && is_last(input)) {
            head.extend([input.parse::<TokenTree>()?]);
        }
        let content;
        let brace = braced!(content in input);
        let inner = content.call(Attribute::parse_inner)?;
        let mut items = Vec::new();
        while !content.is_empty() {
            items.push(BlockItem::parse(&content, keyword == "trait")?);
        }
        Ok(Self { head, keyword, brace, inner, items, beside: TokenStream::new() })
    }
}

fn is_last(input: ParseStream<'_>) -> bool {
    let rest = input.fork();
    rest.parse::<TokenTree>().is_ok() && rest.is_empty()
}

impl BlockItem {
    fn parse(input: ParseStream<'_>, in_trait: bool) -> Result<Self> {
        let ahead = input.fork();
        let (attrs, _vis) = (ahead.call(Attribute::parse_outer)?, ahead.parse::<Visibility>()?);
        if let Ok(signature) = ahead.parse::<Signature>() {
            if !ahead.peek(Token![;]) {
                return input.parse().map(|function| Self::Function(Box::new(function)));
            }
            let semicolon = ahead.parse()?;
            input.advance_to(&ahead);
            return Ok(Self::Declaration(attrs, Box::new(signature), semicolon));
        }
        let (function, is_macro, tokens) = if in_trait {
            let item: TraitItem = input.parse()?;
            (matches!(item, TraitItem::Fn(_)), matches!(item, TraitItem::Macro(_)), item.into_token_stream())
        } else {
            let item: ImplItem = input.parse()?;
            (matches!(item, ImplItem::Fn(_)), matches!(item, ImplItem::Macro(_)), item.into_token_stream())
        };
        if function {
            let text = "`#[idempotent]` on a block does not know this form of function: move it to another block";
            return Err(Error::new_spanned(tokens, text));
        }
        let Some(first) = attrs.iter().find(|attr| is_ours(attr)) else {
            return Ok(if is_macro { Self::Macro(attrs, tokens) } else { Self::Other(tokens) });
        };
        if is_macro {
            return Ok(Self::Macro(attrs, tokens));
        }
        Err(Error::new_spanned(first, "the attribute applies to functions only: remove it"))
    }

    /// Removes the attribute from the function.
    pub(crate) fn strip(&mut self) {
        match self {
            Self::Function(function) => function.attrs.retain(|attr| !is_ours(attr)),
            Self::Declaration(attrs, ..) => attrs.retain(|attr| !is_ours(attr)),
            Self::Macro(attrs, tokens) => {
                let count = attrs.iter().map(|attr| attr.to_token_stream().into_iter().count()).sum();
                let call = std::mem::take(tokens).into_iter().skip(count);
                attrs.retain(|attr| !is_ours(attr));
                let mut left: TokenStream = attrs.iter().map(ToTokens::to_token_stream).collect();
                left.extend(call);
                *self = Self::Other(left);
            }
            Self::Other(_) => {}
        }
    }
}

impl ToTokens for BlockItem {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Function(function) => function.to_tokens(tokens),
            Self::Declaration(attrs, signature, semicolon) => {
                attrs.iter().for_each(|attr| attr.to_tokens(tokens));
                signature.to_tokens(tokens);
                semicolon.to_tokens(tokens);
            }
            Self::Macro(_, other) | Self::Other(other) => other.to_tokens(tokens),
        }
    }
}
