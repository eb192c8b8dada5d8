//! Published cases: each case of `docs/cases.md` names tests that exist.
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item};

use super::sources::texts;

const LIST: &str = "docs/cases.md";

/// A sentence of the list with the tests that show it.
struct Case {
    line: usize,
    tests: Vec<String>,
}

/// Returns the cases without a test, and the listed tests that do not exist.
pub(super) fn cases() -> Result<Vec<String>, Box<dyn Error>> {
    let list = texts(|path| path == Path::new(LIST))?;
    let [(_, list)] = &list[..] else { return Ok(vec![format!("{LIST}: the file is missing")]) };
    Ok(findings(&parse(list), &tests()?))
}

/// Reads list items. Each code span of an item is the path of a test.
fn parse(list: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut in_case = false;
    for (line, text) in (1..).zip(list.lines()) {
        if text.starts_with("- ") {
            cases.push(Case { line, tests: Vec::new() });
        }
        in_case = text.starts_with("- ") || (in_case && text.starts_with("  "));
        if in_case && let Some(case) = cases.last_mut() {
            case.tests.extend(text.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    cases
}

fn findings(cases: &[Case], tests: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    if cases.is_empty() {
        found.push(format!("{LIST}: the file lists no case"));
    }
    for Case { line, tests: listed } in cases {
        if listed.is_empty() {
            found.push(format!("{LIST}:{line}: the case names no test: add `package::path::to::test`"));
        }
        for test in listed.iter().filter(|test| !tests.contains(*test)) {
            found.push(format!("{LIST}:{line}: `{test}` is not a test: correct the path"));
        }
    }
    found
}

/// Returns the paths of all tests of the tracked sources. Ignored tests are left out.
fn tests() -> Result<BTreeSet<String>, Box<dyn Error>> {
    let packages = packages()?;
    let mut tests = BTreeSet::new();
    for (path, text) in texts(|path| path.extension().is_some_and(|end| end == "rs"))? {
        // The longest folder is the package of a file in a nested package.
        let owner = packages.iter().filter(|(folder, _)| path.starts_with(folder));
        let Some((folder, package)) = owner.max_by_key(|(folder, _)| folder.iter().count()) else { continue };
        // Some input of UI tests does not parse, and contains no test.
        if let Ok(file) = syn::parse_file(&text) {
            add(&file.items, &module(package, path.strip_prefix(folder)?), &mut tests);
        }
    }
    Ok(tests)
}

/// Returns the folder and the name of each package.
fn packages() -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let manifests = texts(|path| path.file_name().is_some_and(|name| name == "Cargo.toml"))?;
    let name = |text: &str| {
        let package = text.split("[package]").nth(1)?;
        let line = package.lines().find(|line| line.starts_with("name = "))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    let package = |(path, text): &(PathBuf, String)| Some((path.parent()?.to_owned(), name(text)?));
    Ok(manifests.iter().filter_map(package).collect())
}

/// Returns the path of a file's module, which starts with the name of its package.
fn module(package: &str, path: &Path) -> String {
    let path = path.with_extension("");
    let mut parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    if parts.first().is_some_and(|first| first == "src" || first == "tests") {
        parts.remove(0);
    }
    if parts.last().is_some_and(|last| ["lib", "main", "mod"].contains(&&**last)) {
        parts.pop();
    }
    [package.into()].into_iter().chain(parts).collect::<Vec<_>>().join("::")
}

fn add(items: &[Item], module: &str, tests: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Fn(function) if is_test(&function.attrs) => {
                tests.insert(format!("{module}::{}", function.sig.ident));
            }
            Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    add(items, &format!("{module}::{}", inner.ident), tests);
                }
            }
            _ => {}
        }
    }
}

/// Returns whether the attributes contain `#[test]` or `#[tokio::test]`, and not `#[ignore]`.
fn is_test(attributes: &[Attribute]) -> bool {
    let named = |name| attributes.iter().any(|a| a.path().segments.last().is_some_and(|last| last.ident == name));
    named("test") && !named("ignore")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tests_of(path: &str, text: &str) -> BTreeSet<String> {
        let mut tests = BTreeSet::new();
        add(&syn::parse_file(text).unwrap().items, &module("p", Path::new(path)), &mut tests);
        tests
    }

    #[test]
    fn a_case_without_a_test_and_a_missing_test_are_found() {
        let tests = tests_of("tests/suite/a.rs", "#[test] fn shown() {}");
        let list = "# Cases\n- One.\n  `p::suite::a::shown`\n- Two.\n- Three.\n  `p::suite::a::gone`\n\n`prose`\n";
        let found = findings(&parse(list), &tests);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(":4: the case names no test"), "{found:?}");
        assert!(found[1].contains(":5: `p::suite::a::gone` is not a test"), "{found:?}");
        assert_eq!(findings(&parse("# Cases\n"), &tests).len(), 1, "an empty list");
    }

    #[test]
    fn tests_have_the_path_of_their_file_and_inline_modules() {
        let text = "#[tokio::test(flavor = \"x\")] async fn a() {} fn helper() {} \
            #[test] #[ignore] fn off() {} mod inner { #[test] fn b() {} }";
        let expected = ["p::a::a", "p::a::inner::b"].map(str::to_owned);
        assert_eq!(tests_of("src/a.rs", text), BTreeSet::from(expected));
        assert_eq!(module("p", Path::new("tests/suite/main.rs")), "p::suite");
        assert_eq!(module("p", Path::new("src/lib.rs")), "p");
    }

    #[test]
    fn the_published_cases_of_the_repository_name_tests_that_exist() {
        assert_eq!(cases().unwrap(), [""; 0]);
    }
}
