//! Rules for examples: one short file each, which starts with a sentence. Larger programs belong in `apps`.
use std::path::Path;

use super::sources::texts;
use crate::report::Findings;

/// The maximum number of lines of an example.
const LINES: usize = 150;
/// The examples with a lower limit: a name and the maximum number of lines.
const SHORTER: [(&str, usize); 1] = [("consume.rs", 120)];
/// The folders that contain examples.
const FOLDERS: [&str; 2] = ["examples", "examples/first"];

/// Returns a line for each breach of the rules.
pub(super) fn examples() -> Findings {
    let is_source = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let sources = texts(|path| path.starts_with("examples") && is_source(path))?;
    if sources.is_empty() {
        return Err("examples: no sources found; adapt the check to the new folder".into());
    }
    Ok(sources.iter().flat_map(|(path, text)| breaches(path, text)).collect())
}

/// Checks one source file below `examples`.
fn breaches(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let shown = path.display();
    if !FOLDERS.iter().any(|folder| path.parent() == Some(Path::new(folder))) || is_split(text) {
        found.push(format!("{shown}: an example is one file; move a larger program to apps/"));
    }
    let lines = text.lines().count();
    let limit = SHORTER.iter().find(|(name, _)| path.ends_with(name)).map_or(LINES, |(_, limit)| *limit);
    if lines > limit {
        found.push(format!("{shown}: {lines} lines, limit {limit}; split the example by subject"));
    }
    if !starts_with_sentence(text) {
        found.push(format!("{shown}: line 1 must be a sentence: `//! Shows ….`; the first paragraph says what runs"));
    }
    found
}

/// Returns whether the source includes another file as a module.
fn is_split(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        line.starts_with("#[path") || line.starts_with("mod ") && line.ends_with(';')
    })
}

/// Returns whether the module's doc starts on the first line, with a paragraph that starts with a capital letter and ends
/// with a period.
fn starts_with_sentence(text: &str) -> bool {
    let paragraph: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
    let paragraph = paragraph.join(" ");
    paragraph.starts_with(|first: char| first.is_ascii_uppercase()) && paragraph.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_with_a_sentence_passes_and_each_breach_is_found() {
        let good = "//! Charges a card once.\nfn main() {}\n";
        let of = |lines: usize| good.to_owned() + &"\n".repeat(lines - good.lines().count());
        for (path, text, number) in [
            ("examples/a.rs", good, 0),
            ("examples/first/main.rs", "//! Charges a card\n//! once.\n//!\n//! More\nfn main() {}", 0),
            ("examples/a.rs", &of(150), 0),
            ("examples/a.rs", &of(151), 1),
            ("examples/consume.rs", &of(120), 0),
            ("examples/consume.rs", &of(121), 1),
            ("examples/a/queue.rs", good, 1),
            ("examples/a.rs", &format!("{good}mod queue;\n"), 1),
            ("examples/a.rs", &format!("{good}#[path = \"b/queue.rs\"]\nmod queue;\n"), 1),
            ("examples/a.rs", &format!("{good}mod tests {{\n}}\n"), 0),
            ("examples/a.rs", "fn main() {}\n", 1),
            ("examples/a.rs", "//! an example.\n", 1),
            ("examples/a.rs", "//! An example\n//!\n//! More.\n", 1),
            ("examples/a.rs", "\n//! An example.\n", 1),
        ] {
            assert_eq!(breaches(Path::new(path), text).len(), number, "{path}: {text}");
        }
    }
}
