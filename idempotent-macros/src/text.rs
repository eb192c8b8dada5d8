//! An expression as it was written, for errors at run time.
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The longest text kept, in characters.
const MAX: usize = 80;

/// `order . id` as `order.id`. For people: good blanks matter, not that it can be read back.
pub(crate) fn tidy(tokens: TokenStream) -> String {
    let mut out = String::new();
    write(tokens, &mut out);
    if out.chars().count() > MAX {
        out = out.chars().take(MAX - 1).chain(['…']).collect();
    }
    out
}

fn write(tokens: TokenStream, out: &mut String) {
    // The operator just written, and whether a blank goes before a word that follows.
    let (mut operator, mut blank) = (String::new(), false);
    // Whether a value has ended, so that `-`, `&` and `*` stand between two of them.
    let mut value = false;
    // Between the bars of a closure's parameters.
    let mut bars = false;
    for token in tokens {
        match token {
            TokenTree::Punct(punct) => {
                // `format!`: the bang belongs to the name before it.
                let bang = punct.as_char() == '!' && punct.spacing() == Spacing::Alone && value && operator.is_empty();
                value &= !bang;
                if operator.is_empty() {
                    if if value { !bars && !".,?;:".contains(punct.as_char()) || punct.as_char() == '|' && !bars } else { blank } {
                        out.push(' ');
                    }
                    blank = value;
                }
                operator.push(punct.as_char());
                out.push(punct.as_char());
                if punct.as_char() == '|' && (bars || !value) {
                    bars = !bars && operator == "|";
                    (blank, value) = (!bars, false);
                    operator.clear();
                } else if punct.spacing() == Spacing::Alone {
                    // Glued to what follows: `.`, `::`, `?`, and prefixes.
                    blank = match operator.as_str() {
                        "." | "::" | "?" | ".." | "'" => false,
                        "," | ";" | ":" => true,
                        _ => blank,
                    };
                    value = operator == "?";
                    operator.clear();
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => (" { ", " }"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                if blank && !value {
                    out.push(' ');
                }
                out.push_str(open);
                write(group.stream(), out);
                out.push_str(close);
                (operator, blank, value) = (String::new(), false, true);
            }
            word => {
                if blank || value {
                    out.push(' ');
                }
                out.push_str(&word.to_string());
                (operator, blank, value) = (String::new(), false, true);
            }
        }
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
            "a + b * -c",
            "(a, &b, *c, !d)",
            "a.map(|x| x.id)",
            "a.map(|(x, _)| x | b)",
            "a | b",
            "msg.id as u64",
        ] {
            assert_eq!(tidy(text.parse().unwrap()), text);
        }
        assert_eq!(tidy("a . b (  c )".parse().unwrap()), "a.b(c)");
        assert_eq!(tidy(format!("\"{}\"", "é".repeat(200)).parse().unwrap()).chars().count(), MAX);
    }
}
