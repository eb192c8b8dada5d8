//! Equal lines: runs of lines that two places of the product sources share.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::sources::texts;
use crate::report::Findings;

/// The folders without product sources.
const OTHERS: [&str; 5] = ["apps", "benches", "examples", "fuzz", "tests"];

/// The length of the longest run that two places may share, without comments and blank lines.
const LIMIT: usize = 12;

pub(super) fn equal_lines() -> Findings {
    Ok(repeated(&texts(is_product)?))
}

/// Returns whether the file is a product source. Files of tests are none.
fn is_product(path: &Path) -> bool {
    let has = |name: &str| path.iter().any(|part| part == name);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.extension().is_some_and(|end| end == "rs")
        && has("src")
        && !OTHERS.iter().any(|folder| has(folder))
        && !stem.ends_with("tests")
}

/// Returns the places that share more than [`LIMIT`] lines with an earlier place.
fn repeated(files: &[(PathBuf, String)]) -> Vec<String> {
    let mut known: BTreeMap<Vec<&str>, (&Path, usize)> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, text) in files {
        let lines = code(text);
        // The windows of one run overlap, and only the first is reported.
        let mut reported = 0;
        for (at, window) in lines.windows(LIMIT + 1).enumerate() {
            let key: Vec<_> = window.iter().map(|(_, line)| *line).collect();
            let number = window[0].0;
            match known.get(&key) {
                Some((other, line)) if at >= reported => {
                    reported = at + LIMIT;
                    found.push(format!(
                        "{}:{number}: more than {LIMIT} lines equal those at {}:{line}",
                        path.display(),
                        other.display()
                    ));
                }
                Some(_) => {}
                None => drop(known.insert(key, (path, number))),
            }
        }
    }
    found
}

/// Returns the lines of code before the module `tests`, with their numbers.
fn code(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().map(str::trim).enumerate().map(|(at, line)| (at + 1, line));
    let product = lines.take_while(|(_, line)| *line != "mod tests {");
    product.filter(|(_, line)| !line.is_empty() && !line.starts_with("//")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: &str, second: &str) -> usize {
        repeated(&[("a.rs".into(), first.to_owned()), ("b.rs".into(), second.to_owned())]).len()
    }

    #[test]
    fn a_run_above_the_limit_is_found_once_and_a_shorter_one_is_not() {
        let run = |lines: usize| (0..lines).map(|n| format!("    let n{n} = {n};\n")).collect::<String>();
        assert_eq!(found(&run(LIMIT), &run(LIMIT)), 0);
        assert_eq!(found(&run(LIMIT + 1), &format!("fn f() {{\n\n// A comment.\n{}}}", run(LIMIT + 1))), 1);
        assert_eq!(found(&run(LIMIT * 2), &run(LIMIT * 2)), 1);
        assert_eq!(found(&format!("mod tests {{\n{}}}", run(30)), &run(30)), 0, "tests do not count");
        assert!(is_product(Path::new("idempotent-core/src/key.rs")));
        assert!(!is_product(Path::new("idempotent-core/src/key/tests.rs")));
        assert!(!is_product(Path::new("tests/harness/src/proxy.rs")));
    }
}
