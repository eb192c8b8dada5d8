//! The source text of an expression, for errors at run time.
use std::mem;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The maximum length of the text, in characters.
const MAX: usize = 80;

/// Formats tokens like source code, with spaces only where people write them: `order . id` becomes `order.id`.
pub(crate) fn tidy(tokens: TokenStream) -> String {
    let mut writer = Writer { out: String::new(), last: Kind::Open, bars: false };
    writer.write(tokens);
    let out = writer.out;
    if out.chars().count() <= MAX { out } else { out.chars().take(MAX - 1).chain(['…']).collect() }
}

/// The kind of a token, which determines the spaces around it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
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

struct Writer {
    out: String,
    last: Kind,
    /// True between the bars of a closure's parameters.
    bars: bool,
}

impl Writer {
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
                        Delimiter::Parenthesis => (Kind::Open, "(", Kind::Close, ")"),
                        Delimiter::Bracket => (Kind::Open, "[", Kind::Close, "]"),
                        Delimiter::Brace => (Kind::Brace, "{", Kind::Brace, "}"),
                        Delimiter::None => {
                            self.write(group.stream());
                            continue;
                        }
                    };
                    self.push(kind, open);
                    self.write(group.stream());
                    self.push(end, close);
                }
                word => self.push(Kind::Word, &word.to_string()),
            }
        }
    }

    fn operator(&mut self, operator: &str) {
        let after_value = matches!(self.last, Kind::Word | Kind::Close);
        let kind = match operator {
            "." | "::" | "?" | ".." | "..=" => Kind::Tight,
            "," | ";" | ":" => Kind::Comma,
            "!" if after_value => Kind::Tight,
            "|" if self.bars => Kind::Close,
            "|" if !after_value => Kind::Open,
            "||" if !after_value => Kind::Infix,
            _ if after_value || operator.contains('=') => Kind::Infix,
            _ => Kind::Prefix,
        };
        let bar = operator == "|" && kind != Kind::Infix;
        self.push(kind, operator);
        if bar {
            self.bars = !self.bars;
            self.last = if self.bars { Kind::Open } else { Kind::Infix };
        }
        if operator == "?" {
            self.last = Kind::Close;
        }
    }

    fn push(&mut self, kind: Kind, text: &str) {
        let blank = match (self.last, kind) {
            (Kind::Open | Kind::Tight | Kind::Prefix, _) | (_, Kind::Tight | Kind::Comma | Kind::Close) => false,
            (Kind::Word | Kind::Close, Kind::Open) => false,
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
