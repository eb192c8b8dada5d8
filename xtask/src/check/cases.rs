//! Published cases: each case of `docs/cases.md` and `docs/cases/` names tests that exist. The check reads the sources as
//! text, so that it needs no build.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::sources::texts;
use crate::report::Findings;

/// The index, with a link to each list in [`FOLDER`].
const INDEX: &str = "docs/cases.md";
const FOLDER: &str = "docs/cases";
/// The compile-time tests. trybuild compares the errors of each file in `fail` with its `.stderr` file.
const UI: &str = "tests/ui/";

/// Returns the cases without a test, and the listed tests that do not exist.
pub(super) fn cases() -> Findings {
    let lists = texts(|path| path == Path::new(INDEX) || path.parent() == Some(Path::new(FOLDER)))?;
    let index = lists.iter().find(|(path, _)| path == Path::new(INDEX));
    let (_, index) = index.ok_or_else(|| format!("{INDEX}: the file is missing"))?;
    let wanted = |path: &Path| path.extension().is_some_and(|end| ["rs", "stderr", "toml"].iter().any(|of| end == *of));
    let sources = Sources::read(texts(wanted)?);
    let mut found = Vec::new();
    for (path, list) in lists.iter().filter(|(path, _)| path != Path::new(INDEX)) {
        let name = path.display().to_string();
        if !index.contains(&format!("({})", name.trim_start_matches("docs/"))) {
            found.push(format!("{INDEX}: the file has no link to {name}"));
        }
        found.extend(findings(&name, list, &sources));
    }
    Ok(found)
}

/// Checks the items of a list. A line of an item that starts with a code span is the path of a test.
fn findings(name: &str, list: &str, sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<_> = (1..).zip(list.lines()).collect();
    let starts: Vec<_> = (0..lines.len()).filter(|at| lines[*at].1.starts_with("- ")).collect();
    if starts.is_empty() {
        found.push(format!("{name}: the file lists no case"));
    }
    for start in starts {
        let case = lines[start + 1..].iter().take_while(|(_, text)| text.starts_with("  "));
        let (tests, more): (Vec<_>, Vec<_>) = case.partition(|(_, text)| text.starts_with("  `"));
        let line = start + 1;
        if lines[start].1.contains("::") || more.iter().any(|(_, text)| text.contains("::")) {
            found.push(format!("{name}:{line}: the sentence contains a path: put each test on its own line"));
        }
        if tests.is_empty() {
            found.push(format!("{name}:{line}: the case names no test: add `package::path::to::test`"));
        }
        for (line, test) in tests {
            let test = test.trim().trim_matches('`');
            if !sources.has_test(test) {
                found.push(format!("{name}:{line}: `{test}` is not a test: correct the path"));
            }
        }
    }
    found
}

/// The files of the repository, and the modules of its packages.
struct Sources {
    files: BTreeMap<PathBuf, String>,
    /// The file of each module, whose path starts with the name of its package.
    modules: BTreeMap<String, PathBuf>,
}

impl Sources {
    fn read(files: Vec<(PathBuf, String)>) -> Self {
        let files: BTreeMap<_, _> = files.into_iter().collect();
        let manifests = files.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
        let packages: Vec<_> = manifests.filter_map(|(path, text)| Some((path.parent()?, package(text)?))).collect();
        let module = |path: &PathBuf| {
            let of_packages = packages.iter().filter(|(folder, _)| path.starts_with(folder));
            // The longest folder is the package of a file in a nested package.
            let (folder, package) = of_packages.max_by_key(|(folder, _)| folder.iter().count())?;
            Some((module(package, path.strip_prefix(folder).ok()?), path.clone()))
        };
        let modules = files.keys().filter(|path| path.extension().is_some_and(|end| end == "rs")).filter_map(module);
        Self { modules: modules.collect(), files }
    }

    /// Returns whether this is the path of a test that is not ignored, or of a function that a macro of its package turns
    /// into tests.
    fn has_test(&self, test: &str) -> bool {
        if test.starts_with(UI) {
            let file = Path::new(test);
            let has_errors = self.files.contains_key(&file.with_extension("stderr"));
            return self.files.contains_key(file) && (test.contains("/pass/") || has_errors);
        }
        let (path, is_of_docs) = test.strip_suffix(" (doc test)").map_or((test, false), |path| (path, true));
        let ends: Vec<_> = path.rmatch_indices("::").map(|(at, _)| at).collect();
        let file = ends.iter().find_map(|end| Some((self.modules.get(&path[..*end])?, &path[end + 2..])));
        let Some((file, rest)) = file else { return false };
        let text = &self.files[file];
        let (inner, name) = rest.rsplit_once("::").unwrap_or(("", rest));
        if !inner.split("::").all(|module| module.is_empty() || text.contains(&format!("mod {module} {{"))) {
            return false;
        }
        if is_of_docs {
            return text.contains(&format!("mod {name} ")) || text.contains(&format!("mod {name};"));
        }
        let defined = |end| text.split_once(&format!("fn {name}{end}"));
        let Some((before, _)) = defined('(').or_else(|| defined('<')) else { return false };
        let attributes = before.rsplit("\n\n").next().unwrap_or_default().rsplit(['}', ';']).next().unwrap_or_default();
        let is_marked = attributes.contains("test]") || attributes.contains("test(");
        !attributes.contains("#[ignore") && (is_marked || self.is_listed(path, name))
    }

    /// Returns whether a file of the package names the function once more, as a list for a macro does.
    fn is_listed(&self, path: &str, name: &str) -> bool {
        let package = path.split_inclusive("::").next().unwrap_or_default();
        let of_package = self.modules.iter().filter(|(module, _)| format!("{module}::").starts_with(package));
        let is_part = |char: char| char.is_alphanumeric() || char == '_';
        let words = of_package.flat_map(|(_, file)| self.files[file].split(|char| !is_part(char)));
        words.filter(|word| *word == name).count() > 1
    }
}

/// Returns the name of the package in the text of a manifest.
fn package(manifest: &str) -> Option<&str> {
    manifest.split("[package]").nth(1)?.split("name = \"").nth(1)?.split('"').next()
}

/// Returns the path of a file's module.
fn module(package: &str, path: &Path) -> String {
    let path = path.with_extension("");
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let parts = parts.iter().skip(usize::from(parts[0] == "src" || parts[0] == "tests")).map(|part| &**part);
    let parts = parts.filter(|part| !["lib", "main", "mod"].contains(part));
    [package].into_iter().chain(parts).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        let a = "#[tokio::test(flavor = \"x\")]\nasync fn shown() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn off() {}\n\n\
            fn helper() {}\n\nfn listed<B>() {}\n\non_each! { listed }\n\nmod inner {\n    #[test]\n    fn b() {}\n}\n\n\
            #[doc = include_str!(\"a.md\")]\nmod guide {}\n";
        let files = [
            ("Cargo.toml", "[package]\nname = \"p\"\n"),
            ("tests/suite/a.rs", a),
            ("tests/ui/fail/found.rs", ""),
            ("tests/ui/fail/found.stderr", "error"),
            ("tests/ui/fail/unknown.rs", ""),
            ("tests/ui/pass/fine.rs", ""),
        ];
        Sources::read(files.map(|(path, text)| (path.into(), text.to_owned())).into())
    }

    #[test]
    fn a_test_is_found_at_the_path_of_its_file_and_of_inline_modules() {
        for (path, is_test) in [
            ("p::suite::a::shown", true),
            ("p::suite::a::listed", true),
            ("p::suite::a::inner::b", true),
            ("p::suite::a::guide (doc test)", true),
            ("tests/ui/fail/found.rs", true),
            ("tests/ui/pass/fine.rs", true),
            ("tests/ui/fail/unknown.rs", false),
            ("p::suite::a::off", false),
            ("p::suite::a::helper", false),
            ("p::suite::a::outer::b", false),
            ("p::suite::a::gone", false),
            ("p::suite::gone::shown", false),
            ("q::suite::a::shown", false),
        ] {
            assert_eq!(sources().has_test(path), is_test, "{path}");
        }
    }

    #[test]
    fn a_case_without_a_test_and_a_missing_test_are_found() {
        let list = "# Cases\n- One `value`.\n  `p::suite::a::shown`\n- Two.\n- Three, on\n  two lines.\n  \
            `p::suite::a::gone`\n  `p::suite::a::shown`, `p::suite::a::shown`\n- `p::suite::a::shown` shows this.\n  \
            `p::suite::a::shown`\n\n`prose`\n";
        let found = findings("list", list, &sources());
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains(":4: the case names no test"), "{found:?}");
        assert!(found[1].contains(":7: `p::suite::a::gone` is not a test"), "{found:?}");
        assert!(found[2].contains(":8: `p::suite::a::shown`, "), "two tests on one line: {found:?}");
        assert!(found[3].contains(":9: the sentence contains a path"), "{found:?}");
        assert_eq!(findings("list", "# Cases\n", &sources()).len(), 1, "an empty list");
    }

    #[test]
    fn the_published_cases_of_the_repository_name_tests_that_exist() {
        assert_eq!(cases().unwrap(), [""; 0]);
    }
}
