//! The source text of an expression, for errors at run time.
use std::mem;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The maximum length of the text, in characters.
const MAX: usize = 80;

/// Formats tokens like source code, with the usual spaces: `order . id` becomes `order.id`.
pub(crate) fn tidy(tokens: TokenStream) -> String {
    let mut writer = SourceWriter { out: String::new(), last: TokenSpacing::Open, bars: false };
    writer.write(tokens);
    let out = writer.out;
    if out.chars().count() <= MAX { out } else { out.chars().take(MAX - 1).chain(['…']).collect() }
}

/// The kind of a token, which determines the spaces around it.
#[derive(Clone, Copy, PartialEq)]
enum TokenSpacing {
    Word,
    /// `.`, `::`, `?`, `!` of a macro: no spaces.
    Tight,
    /// `-`, `&`, `*`, `!` before a value: no space after it.
    Prefix,
    /// An operator between two values: a space on each side.
    Infix,
    /// `,`, `;` and `:`: a space after it.
    Comma,
    Open,
    Close,
    /// `{` and `}`: a space on each side.
    Brace,
}

struct SourceWriter {
    out: String,
    last: TokenSpacing,
    /// True between the bars of a closure's parameters.
    bars: bool,
}

impl SourceWriter {
    fn write(&mut self, tokens: TokenStream) {
        let mut operator = String::new();
        for token in tokens {
            match token {
                TokenTree::Punct(punct) => {
                    if operator == "|" && !"|=".contains(punct.as_char()) {
                        self.operator(&mem::take(&mut operator));
                    }
                    operator.push(punct.as_char());
                    // `?.` and `,&` are two operators, even without a space between them.
                    if punct.spacing() == Spacing::Alone || ",;?".contains(punct.as_char()) {
                        self.operator(&mem::take(&mut operator));
                    }
                }
                TokenTree::Group(group) => {
                    let (kind, open, end, close) = match group.delimiter() {
                        Delimiter::Parenthesis => (TokenSpacing::Open, "(", TokenSpacing::Close, ")"),
                        Delimiter::Bracket => (TokenSpacing::Open, "[", TokenSpacing::Close, "]"),
                        Delimiter::Brace => (TokenSpacing::Brace, "{", TokenSpacing::Brace, "}"),
                        Delimiter::None => {
                            self.write(group.stream());
                            continue;
                        }
                    };
                    self.push(kind, open);
                    self.write(group.stream());
                    self.push(end, close);
                }
                word => self.push(TokenSpacing::Word, &word.to_string()),
            }
        }
    }

    fn operator(&mut self, operator: &str) {
        let after_value = matches!(self.last, TokenSpacing::Word | TokenSpacing::Close);
        let kind = match operator {
            "." | "::" | "?" | ".." | "..=" => TokenSpacing::Tight,
            "," | ";" | ":" => TokenSpacing::Comma,
            "!" if after_value => TokenSpacing::Tight,
            "|" if self.bars => TokenSpacing::Close,
            "|" if !after_value => TokenSpacing::Open,
            "||" if !after_value => TokenSpacing::Infix,
            _ if after_value || operator.contains('=') => TokenSpacing::Infix,
            _ => TokenSpacing::Prefix,
        };
        let bar = operator == "|" && kind != TokenSpacing::Infix;
        self.push(kind, operator);
        if bar {
            self.bars = !self.bars;
            self.last = if self.bars { TokenSpacing::Open } else { TokenSpacing::Infix };
        }
        if operator == "?" {
            self.last = TokenSpacing::Close;
        }
    }

    fn push(&mut self, kind: TokenSpacing, text: &str) {
        let blank = match (self.last, kind) {
            (TokenSpacing::Open | TokenSpacing::Tight | TokenSpacing::Prefix, _)
            | (_, TokenSpacing::Tight | TokenSpacing::Comma | TokenSpacing::Close) => false,
            (TokenSpacing::Word | TokenSpacing::Close, TokenSpacing::Open) => false,
            _ => !self.out.is_empty(),
        };
        if blank {
            self.out.push(' ');
        }
        self.out.push_str(text);
        self.last = kind;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn spaces_are_as_people_write_them() {
        for text in [
            "order.id",
            "(a, b.to_string())",
            "&order.items[0].id",
            "format!(\"{}-{}\", a, b)",
            "module::f(a)?",
            "msg.id?.len()",
            "a + b * -c",
            "(a, &b, *c, !d)",
            "a.map(|x| x.id)",
            "a.map(|(x, _)| x | b)",
            "a | b || c",
            "a.map(|&x| x).map(|| 1)",
            "msg.id as u64",
            "match a { Some(b) => b, None => c }",
            "&id[..8]",
            "a != b",
        ] {
            assert_eq!(tidy(text.parse().unwrap()), text);
        }
        assert_eq!(tidy("a . b (  c )".parse().unwrap()), "a.b(c)");
        assert_eq!(tidy(format!("\"{}\"", "é".repeat(200)).parse().unwrap()).chars().count(), MAX);
    }
}
