//! Published cases: each case of `docs/cases.md` and `docs/cases/` names tests that exist.
mod index;
mod listed;

use std::error::Error;
use std::path::Path;

use self::index::Tests;
use super::sources::texts;

/// The index, with a link to each list in [`FOLDER`].
const INDEX: &str = "docs/cases.md";
const FOLDER: &str = "docs/cases";

/// A sentence of the list with the tests that show it.
struct Case {
    line: usize,
    /// Text of the case outside of the lines of its tests.
    sentence: String,
    tests: Vec<String>,
}

/// Returns the cases without a test, and the listed tests that do not exist.
pub(super) fn cases() -> Result<Vec<String>, Box<dyn Error>> {
    let lists = texts(|path| path == Path::new(INDEX) || path.parent() == Some(Path::new(FOLDER)))?;
    let Some((_, index)) = lists.iter().find(|(path, _)| path == Path::new(INDEX)) else {
        return Ok(vec![format!("{INDEX}: the file is missing")]);
    };
    let tests = Tests::of_repository()?;
    let mut found = Vec::new();
    for (path, list) in lists.iter().filter(|(path, _)| path != Path::new(INDEX)) {
        found.extend(unlinked(path, index));
        found.extend(findings(&path.display().to_string(), &parse(list), &tests));
    }
    if found.is_empty() && lists.len() == 1 {
        found.push(format!("{FOLDER}: the folder has no list"));
    }
    Ok(found)
}

/// Returns a finding if the index has no link to the list.
fn unlinked(list: &Path, index: &str) -> Option<String> {
    let link = format!("(cases/{})", list.file_name()?.to_string_lossy());
    (!index.contains(&link)).then(|| format!("{INDEX}: the file has no link to {}", list.display()))
}

/// Reads list items. A line of an item that starts with a code span is the path of a test.
fn parse(list: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut in_case = false;
    for (line, text) in (1..).zip(list.lines()) {
        if let Some(sentence) = text.strip_prefix("- ") {
            cases.push(Case { line, sentence: sentence.to_owned(), tests: Vec::new() });
            in_case = true;
            continue;
        }
        in_case &= text.starts_with("  ");
        if in_case && let Some(case) = cases.last_mut() {
            match text.trim().strip_prefix('`') {
                Some(test) => case.tests.push(test.strip_suffix('`').unwrap_or(test).to_owned()),
                None => case.sentence.push_str(text),
            }
        }
    }
    cases
}

fn findings(list: &str, cases: &[Case], tests: &Tests) -> Vec<String> {
    let mut found = Vec::new();
    if cases.is_empty() {
        found.push(format!("{list}: the file lists no case"));
    }
    for Case { line, sentence, tests: listed } in cases {
        if sentence.contains("::") {
            found.push(format!("{list}:{line}: the sentence contains a path: put each test on its own line"));
        }
        if listed.is_empty() {
            found.push(format!("{list}:{line}: the case names no test: add `package::path::to::test`"));
        }
        for test in listed.iter().filter(|test| !tests.contains(test)) {
            let remedy =
                tests.moved(test).map_or("correct the path".to_owned(), |path| format!("did you mean `{path}`?"));
            found.push(format!("{list}:{line}: `{test}` is not a test: {remedy}"));
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_a_test_and_a_missing_test_are_found() {
        let tests = Tests::of([("tests/suite/a.rs", "#[test] fn shown() {}")]);
        let list = "# Cases\n- One `value`.\n  `p::suite::a::shown`\n- Two.\n- Three, on\n  two lines.\n  \
            `p::suite::a::gone`\n  `p::suite::a::shown`, `p::suite::a::shown`\n- `p::suite::a::shown` shows this.\n  \
            `p::suite::a::shown`\n\n`prose`\n";
        let found = findings("list", &parse(list), &tests);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains(":4: the case names no test"), "{found:?}");
        assert!(found[1].contains(":5: `p::suite::a::gone` is not a test"), "{found:?}");
        assert!(found[2].contains(":5: `p::suite::a::shown`, "), "two tests on one line: {found:?}");
        assert!(found[3].contains(":9: the sentence contains a path"), "{found:?}");
        assert_eq!(findings("list", &parse("# Cases\n"), &tests).len(), 1, "an empty list");
    }

    #[test]
    fn a_test_that_moved_is_suggested() {
        let tests =
            Tests::of([("src/new.rs", "#[test] fn shown() {} mod a { #[test] fn twice() {} } #[test] fn twice() {}")]);
        let found = findings("list", &parse("- One.\n  `p::old::shown`\n  `p::old::twice`\n"), &tests);
        assert!(found[0].ends_with("is not a test: did you mean `p::new::shown`?"), "{found:?}");
        assert!(found[1].ends_with("is not a test: correct the path"), "two tests have the name: {found:?}");
    }

    #[test]
    fn each_list_has_a_link_in_the_index() {
        let list = Path::new("docs/cases/leases.md");
        assert_eq!(unlinked(list, "- [Leases](cases/leases.md)"), None);
        assert!(unlinked(list, "[Leases](cases/leases.md.old)").unwrap().contains("no link to docs/cases/leases.md"));
    }

    #[test]
    fn the_published_cases_of_the_repository_name_tests_that_exist() {
        assert_eq!(cases().unwrap(), [""; 0]);
    }
}
