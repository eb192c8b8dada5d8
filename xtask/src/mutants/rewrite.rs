//! The source of a build with all mutants of a file: each is a branch, and one number selects the mutant that runs.
use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The number of a mutant in its build. Zero means no mutant.
pub(super) type Id = u32;

/// A mutant, as cargo-mutants lists it.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    pub(super) name: String,
    pub(super) file: String,
    genre: String,
    replacement: String,
    /// Lines and columns, both from 1, of the first character and of the one after the last.
    start: (usize, usize),
    end: (usize, usize),
}

impl Mutant {
    /// Reads an element of the list of cargo-mutants.
    pub(super) fn read(listed: &Value) -> Option<Self> {
        let text = |name: &str| listed[name].as_str().map(str::to_owned);
        let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        let place = |name: &str| {
            let place = &listed["span"][name];
            Some((number(&place["line"])?, number(&place["column"])?))
        };
        Some(Self {
            name: text("name")?,
            file: text("file")?,
            genre: text("genre")?,
            replacement: text("replacement")?,
            start: place("start")?,
            end: place("end")?,
        })
    }
}

/// A file with its mutants as branches.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// The range of each mutant's branch in the text, and of the place that contains the branch.
    pub(super) branches: Vec<(Id, Range<usize>)>,
}

/// An expression, or an empty range at the start of a function, with the texts of its mutants.
#[derive(Debug, Default)]
struct Site {
    is_block: bool,
    variants: Vec<(Id, String)>,
}

/// Writes the mutants into the source of their file. A mutant that has no place of its own gets no branch.
pub(super) fn rewrite(source: &str, mutants: &[(Id, &Mutant)]) -> syn::Result<Rewritten> {
    let file = syn::parse_file(source)?;
    let mut places = Places::default();
    places.visit_file(&file);
    let mut sites: BTreeMap<(usize, std::cmp::Reverse<usize>), Site> = BTreeMap::new();
    for (id, mutant) in mutants {
        let (Some(start), Some(end)) = (offset(source, mutant.start), offset(source, mutant.end)) else { continue };
        let replacement = &mutant.replacement;
        if mutant.genre == "FnValue" {
            let site = sites.entry((start, std::cmp::Reverse(start))).or_default();
            site.variants.push((*id, format!("return ({replacement})")));
        } else if let Some((place, is_block)) = places.around(start, end) {
            let text = format!("{}{replacement}{}", &source[place.start..start], &source[end..place.end]);
            let site = sites.entry((place.start, std::cmp::Reverse(place.end))).or_default();
            site.is_block = is_block;
            site.variants.push((*id, text));
        }
    }
    let sites: Vec<_> = sites.into_iter().map(|((start, end), site)| (start..end.0, site)).collect();
    let mut rewritten = Rewritten::default();
    rewritten.emit(source, 0..source.len(), &sites);
    Ok(rewritten)
}

impl Rewritten {
    /// Appends a range of the source, with its sites as branches. The sites are in order, outer ones first.
    fn emit(&mut self, source: &str, range: Range<usize>, sites: &[(Range<usize>, Site)]) {
        let (mut at, mut next) = (range.start, 0);
        while let Some((place, site)) = sites.get(next) {
            let inside = sites[next + 1..].iter().take_while(|(inner, _)| inner.end <= place.end && !place.is_empty());
            let inner = &sites[next + 1..][..inside.count()];
            self.text.push_str(&source[at..place.start]);
            let parentheses = if site.is_block || place.is_empty() { ["", ""] } else { ["(", ")"] };
            let ids: Vec<_> = site.variants.iter().map(|(id, _)| id.to_string()).collect();
            self.text.push_str(&format!("{}match crate::active_mutant(&[{}]) {{ ", parentheses[0], ids.join(", ")));
            for (id, variant) in &site.variants {
                let start = self.text.len();
                self.text.push_str(&format!("{id}u32 => {variant}, "));
                self.branches.push((*id, start..self.text.len()));
            }
            if place.is_empty() {
                self.text.push_str("_ => {} } ");
            } else {
                self.text.push_str("_ => ");
                self.emit(source, place.clone(), inner);
                self.text.push_str(&format!(" }}{}", parentheses[1]));
            }
            at = place.end;
            next += 1 + inner.len();
        }
        self.text.push_str(&source[at..range.end]);
    }
}

/// The expressions that mutants change.
#[derive(Debug, Default)]
struct Places {
    expressions: Vec<(Range<usize>, Change, bool)>,
}

/// The part of an expression that a mutant changes.
#[derive(Debug)]
enum Change {
    /// The token in this range.
    Token(Range<usize>),
    /// A part of an expression, such as an arm.
    Part,
    /// All of the expression.
    Whole,
}

impl Places {
    /// Returns the smallest expression that the change of a range changes, and whether the expression is a block.
    fn around(&self, start: usize, end: usize) -> Option<(Range<usize>, bool)> {
        let fits = |(place, change, _): &&(Range<usize>, Change, bool)| match change {
            Change::Token(token) => *token == (start..end),
            Change::Part => place.start < start && end < place.end,
            Change::Whole => *place == (start..end),
        };
        let exact = self.expressions.iter().filter(|place| !matches!(place.1, Change::Part)).find(fits);
        let found = exact.or_else(|| self.expressions.iter().filter(fits).min_by_key(|(place, ..)| place.len()));
        found.map(|(place, _, is_block)| (place.clone(), *is_block))
    }
}

impl<'ast> Visit<'ast> for Places {
    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        // A condition with `let` cannot be a branch.
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let token = Change::Token(binary.op.span().byte_range());
            self.expressions.push((binary.span().byte_range(), token, false));
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.expressions.push((unary.span().byte_range(), Change::Token(unary.op.span().byte_range()), false));
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        self.expressions.push((literal.span().byte_range(), Change::Part, false));
        visit::visit_expr_struct(self, literal);
    }

    fn visit_expr_match(&mut self, matching: &'ast syn::ExprMatch) {
        self.expressions.push((matching.span().byte_range(), Change::Part, true));
        visit::visit_expr_match(self, matching);
    }

    fn visit_pat_guard(&mut self, pattern: &'ast syn::PatGuard) {
        if !has_let(&pattern.guard) {
            self.expressions.push((pattern.guard.span().byte_range(), Change::Whole, false));
        }
        visit::visit_pat_guard(self, pattern);
    }
}

fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Returns the byte offset of a line and a column of characters.
fn offset(source: &str, (line, column): (usize, usize)) -> Option<usize> {
    let start: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = source.get(start..)?;
    let inside = rest.char_indices().nth(column.checked_sub(1)?).map_or(rest.len(), |(at, _)| at);
    Some(start + inside)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Returns a mutant of the first occurrence of a text in a source of one line.
    fn mutant(source: &str, genre: &str, text: &str, replacement: &str) -> Mutant {
        let start = source.find(text).unwrap();
        let place = |offset: usize| serde_json::json!({ "line": 1, "column": offset + 1 });
        let listed = serde_json::json!({
            "name": "m", "file": "f.rs", "genre": genre, "replacement": replacement,
            "span": { "start": place(start), "end": place(start + text.len()) },
        });
        Mutant::read(&listed).unwrap()
    }

    #[test]
    fn each_mutant_is_a_branch_of_its_smallest_expression() {
        for (genre, source, text, replacement, expected) in [
            ("BinaryOperator", "fn f() { g(a && b < c) }", "<", ">", "g(a && (match S { 1u32 => b > c, _ => b < c }))"),
            ("BinaryOperator", "fn f() { n += 1; }", "+=", "-=", "(match S { 1u32 => n -= 1, _ => n += 1 });"),
            ("UnaryOperator", "fn f() { !a }", "!", "", "(match S { 1u32 => a, _ => !a })"),
            ("FnValue", "fn f() { g() }", "g()", "0", "match S { 1u32 => return (0), _ => {} } g()"),
            (
                "StructField",
                "fn f() { A { b: 1, ..c } }",
                "b: 1,",
                "",
                "(match S { 1u32 => A {  ..c }, _ => A { b: 1, ..c } })",
            ),
            (
                "MatchArmGuard",
                "fn f() { match a { b if e => d } }",
                "e",
                "true",
                "b if (match S { 1u32 => true, _ => e }) => d",
            ),
            (
                "MatchArm",
                "fn f() { match a { 1 => b, _ => c } }",
                "1 => b,",
                "",
                "match S { 1u32 => match a {  _ => c }, _ => match a { 1 => b, _ => c } }",
            ),
        ] {
            let mutant = mutant(source, genre, text, replacement);
            let rewritten = rewrite(source, &[(1, &mutant)]).unwrap();
            let text = rewritten.text.replace("crate::active_mutant(&[1])", "S");
            assert!(text.contains(expected), "{genre}: {text}");
            assert_eq!(rewritten.branches.len(), 1);
        }
    }

    #[test]
    fn a_mutant_inside_another_is_a_branch_of_the_unchanged_expression() {
        let source = "fn f() { a < b || c }";
        let (outer, inner) =
            (mutant(source, "BinaryOperator", "||", "&&"), mutant(source, "BinaryOperator", "<", "=="));
        let text = rewrite(source, &[(1, &outer), (2, &inner)]).unwrap().text;
        let expected = "(match crate::active_mutant(&[1]) { 1u32 => a < b && c, _ => \
                        (match crate::active_mutant(&[2]) { 2u32 => a == b, _ => a < b }) || c })";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_condition_with_let_has_no_branch() {
        let source = "fn f() { if let Some(a) = b && c {} }";
        let mutant = mutant(source, "BinaryOperator", "&&", "||");
        let rewritten = rewrite(source, &[(1, &mutant)]).unwrap();
        assert_eq!((rewritten.text.as_str(), rewritten.branches.len()), (source, 0));
    }
}
