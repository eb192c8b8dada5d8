//! Rules of the guides, which are one source for GitHub, for the book and for rustdoc.
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use super::links::Page;
use super::sources::texts;

const SUMMARY: &str = "guides/SUMMARY.md";
/// The page of the book that only points to others.
const INTRODUCTION: &str = "introduction.md";
/// The modules that show each guide in rustdoc, and that compile its examples.
const SHOWN: &str = "src/docs.rs";
const COMPILED: &str = "tests/integration/guides.rs";

/// Returns a line for each breach of the rules.
///
/// # Errors
/// A file is missing, or the files of the checkout cannot be listed.
pub(super) fn book() -> Result<Vec<String>, Box<dyn Error>> {
    let mut files: BTreeMap<PathBuf, String> =
        texts(|path| path.starts_with("guides") || path == Path::new(SHOWN) || path == Path::new(COMPILED))?
            .into_iter()
            .collect();
    let mut take = |name: &str| files.remove(Path::new(name)).ok_or_else(|| format!("book: no {name}"));
    let (summary, shown, compiled) = (take(SUMMARY)?, take(SHOWN)?, take(COMPILED)?);
    let listed = Page::parse(&summary).links;
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "md")) {
        let name = path.strip_prefix("guides")?.to_string_lossy().into_owned();
        if !listed.contains(&name) {
            found.push(format!("{}: not listed in {SUMMARY}", path.display()));
        }
        if name != INTRODUCTION {
            let included = format!("\"{name}\"");
            // Rustdoc shows the English pages.
            if !name.contains('/') && !shown.contains(&included) && !shown.contains(&format!("guides/{name}\"")) {
                found.push(format!("{}: not included in {SHOWN}", path.display()));
            }
            // The code of a translation is that of its English page.
            if !name.contains('/') && text.contains("```rust") && !compiled.contains(&format!("guides/{name}\"")) {
                found.push(format!("{}: its examples are not compiled; add it to {COMPILED}", path.display()));
            }
        }
        found.extend(breaches(text).into_iter().map(|breach| format!("{}:{breach}", path.display())));
    }
    Ok(found)
}

/// Checks one guide: a title, no links that only rustdoc resolves, no hidden lines, and a language for each block.
fn breaches(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !text.starts_with("# ") {
        found.push("1: a guide starts with its title: `# Title`".to_owned());
    }
    for label in Page::parse(text).undefined {
        found.push(format!(" `[{label}]` has no definition; add `[{label}]: page.md` at the end"));
    }
    let mut block = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), block) {
            (Some(""), None) => found.push(format!("{number}: a code block needs a language")),
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, Some(language)) => {
                let line = line.trim_start();
                if language.starts_with("rust") && (line == "#" || line.starts_with("# ")) {
                    found.push(format!("{number}: GitHub shows hidden lines; write the whole program"));
                }
            }
            (None, None) if line.contains("](crate::") => {
                found.push(format!("{number}: only rustdoc resolves `crate::`; write the name as code"));
            }
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_checked() {
        let guide = "# Keys\n\n[steps] `x`\n\n```rust\nlet a = 1;\n#[test]\n```\n\n[steps]: steps.md\n";
        assert_eq!(breaches(guide), [""; 0]);
        let bad = "Keys\n\n[steps] [`A`](crate::A)\n\n```\nx\n```\n```rust\n# use x;\n```\n";
        let found = breaches(bad).join("\n");
        for part in ["title", "`[steps]`", "3: only rustdoc", "language", "9: GitHub"] {
            assert!(found.contains(part), "{part}: {found}");
        }
    }

    #[test]
    fn the_guides_of_the_repository_keep_the_rules() {
        assert_eq!(book().unwrap(), [""; 0]);
    }
}
