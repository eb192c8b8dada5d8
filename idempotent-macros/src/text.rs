//! An expression as it was written, for errors at run time.
use std::mem;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The longest text kept, in characters.
const MAX: usize = 80;

/// `order . id` as `order.id`. For people: the blanks should be where they are expected, no more.
pub(crate) fn tidy(tokens: TokenStream) -> String {
    let mut writer = Writer { out: String::new(), last: Kind::Open, bars: false };
    writer.write(tokens);
    let out = writer.out;
    if out.chars().count() <= MAX { out } else { out.chars().take(MAX - 1).chain(['…']).collect() }
}

/// What a piece of text asks of the blanks around it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Word,
    /// `.`, `::`, `?`, `!` of a macro: none on either side.
    Tight,
    /// `-`, `&`, `*`, `!` before a value: none after it.
    Prefix,
    /// Between two values: one on either side.
    Infix,
    /// `,`, `;` and `:`: one after it.
    Comma,
    Open,
    Close,
    /// `{` and `}`: one on either side.
    Brace,
}

struct Writer {
    out: String,
    last: Kind,
    /// Between the bars of a closure's parameters.
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
                    // `?.` and `,&` are two operators, however close they stand.
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
    fn blanks_are_as_people_write_them() {
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
