//! The language rules of CONTRIBUTING.md, as far as a machine can check them.
use std::path::Path;

use super::sources::{CRATES, texts};
use crate::report::Findings;

/// Further folders whose sources keep the rules. A crate that keeps them is added here.
const FURTHER: [&str; 5] =
    ["idempotent-testkit/src", "tests/harness/src", "tests/http/src", "tests/simulator/src", "xtask/src"];

/// The start of a comment that exempts the next line, or the next documentation comment, from the rules. The reason
/// follows.
const ALLOW: &str = "// prose-allow: ";

/// First words of sentences without a subject or a verb.
const FRAGMENTS: &str = " what who whose whom how where when whether why which it as of those that by up from so not none for \
    nobody somebody likewise else with without to behind ";

/// Words that have a plain equivalent, or that hide the subject.
const DIALECT: &str = "nobody, somebody, whoever, whom, told, tells, behind, beside, else, anew, likewise, comes to, came to, \
    put aside, by hand, to be had";

pub(super) fn prose() -> Findings {
    let mut found = Vec::new();
    let checked = |path: &Path| {
        path.extension().is_some_and(|extension| extension == "rs")
            && CRATES.iter().chain(&FURTHER).any(|root| path.starts_with(root))
    };
    for (path, text) in texts(checked)? {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        found.extend(findings(&lines).into_iter().map(|(line, text)| format!("{}:{line}: {text}", path.display())));
    }
    Ok(found)
}

/// Returns each violation with its line, counted from 1.
fn findings(lines: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (at, line) in lines.iter().enumerate() {
        let Some(comment) = comment(line) else {
            in_code = false;
            continue;
        };
        let above = |at: usize| at.checked_sub(1).map_or("", |before| lines[before]);
        if line.starts_with("///") && !above(at).starts_with("///") && !above(at).starts_with(ALLOW) {
            found.extend(first_sentence(&lines[at..]).map(|finding| (at + 1, finding)));
        }
        in_code ^= comment.trim_start().starts_with("```");
        if !in_code && !above(at).starts_with(ALLOW) && !line.starts_with(ALLOW) {
            let words =
                format!(" {} ", without_code(comment).to_lowercase().replace(|char: char| !char.is_alphabetic(), " "));
            let odd = DIALECT.split(", ").filter(|odd| words.contains(&format!(" {odd} ")));
            found.extend(odd.map(|odd| (at + 1, format!("`{odd}`: use the field's word, see CONTRIBUTING.md"))));
        }
    }
    found
}

/// Returns the text of a comment line.
fn comment(line: &str) -> Option<&str> {
    ["///", "//!", "//"].iter().find_map(|start| line.strip_prefix(start))
}

/// Returns a comment without names and code in backticks.
fn without_code(comment: &str) -> String {
    comment.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Returns the error for the first word of a documentation comment. The first of `lines` is the start of the comment.
fn first_sentence(lines: &[&str]) -> Option<String> {
    let text = lines.first()?.strip_prefix("///")?.trim();
    let word = text.split_whitespace().next()?.trim_matches(|char: char| !char.is_alphanumeric());
    if FRAGMENTS.contains(&format!(" {} ", word.to_lowercase())) {
        return Some(format!(
            "the first sentence starts with `{word}`: a function starts with a verb, a type with a noun"
        ));
    }
    let item = lines.iter().find(|line| !line.starts_with("///") && !line.starts_with('#'))?;
    let is_function = item.split_whitespace().take(4).any(|token| token == "fn");
    let is_verb = word.ends_with('s') && word.starts_with(char::is_uppercase);
    (is_function && !is_verb).then(|| format!("the documentation of a function starts with a verb, not with `{word}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_a_function_without_a_verb_and_a_dialect_word_are_found() {
        let of = |lines: &[&str]| findings(lines).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(of(&["/// What it is.", "struct A;"]), [1]);
        assert_eq!(of(&["/// The key.", "#[must_use]", "pub(crate) async fn key() {}"]), [1]);
        assert_eq!(of(&["/// Returns the key.", "/// Nobody else has it.", "fn key() {}"]), [2, 2]);
        assert_eq!(of(&["// The worker is told of it."]), [1]);
    }

    #[test]
    fn plain_sentences_code_and_lines_with_a_reason_pass() {
        let lines = [
            "/// A lease.",
            "struct Lease;",
            "/// Returns the lease of `key`.",
            "fn lease() { let told = 1; }",
            "// prose-allow: quotes another program's output",
            "// nobody",
            "/// Runs `nobody_else` and an example:",
            "/// ```",
            "/// let told = if a { b } else { c };",
            "/// ```",
            "fn example() {}",
        ];
        assert_eq!(findings(&lines), []);
    }
}
