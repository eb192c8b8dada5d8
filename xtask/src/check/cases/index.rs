//! The paths of all tests of the repository, read from the sources without a build.
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, TraitItem, Type};

use super::listed::Macros;
use crate::check::sources::texts;

/// The package of the compile-time tests. trybuild compares the errors of each file in `fail` with its `.stderr` file.
const UI: &str = "tests/ui";

/// The paths of all tests. Ignored tests are left out.
#[derive(Debug, Default)]
pub(super) struct Tests(BTreeSet<String>);

impl Tests {
    pub(super) fn contains(&self, test: &str) -> bool {
        self.0.contains(test)
    }

    /// Returns the only test with the same function or file name, which may have moved.
    pub(super) fn moved(&self, test: &str) -> Option<&str> {
        fn name(path: &str) -> Option<&str> {
            path.rsplit([':', '/']).next()
        }
        let mut same = self.0.iter().filter(|other| name(other) == name(test));
        same.next().filter(|_| same.next().is_none()).map(String::as_str)
    }

    /// Returns the tests of the tracked sources.
    pub(super) fn of_repository() -> Result<Self, Box<dyn Error>> {
        let packages = packages()?;
        let sources =
            texts(|path| path.extension().is_some_and(|end| ["rs", "md", "stderr"].iter().any(|known| end == *known)))?;
        Ok(Self::read(&packages, &sources))
    }

    #[cfg(test)]
    pub(super) fn of<const N: usize>(sources: [(&str, &str); N]) -> Self {
        let sources = sources.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        Self::read(&[(PathBuf::new(), "p".to_owned())], &sources)
    }

    fn read(packages: &[(PathBuf, String)], sources: &[(PathBuf, String)]) -> Self {
        let mut reader = Reader { sources, tests: Self::default(), macros: Macros::default() };
        for (path, text) in sources.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "rs")) {
            if path.parent().is_some_and(|folder| folder.starts_with(UI) && folder != Path::new(UI)) {
                reader.add_ui(path);
                continue;
            }
            // The longest folder is the package of a file in a nested package.
            let owner = packages.iter().filter(|(folder, _)| path.starts_with(folder));
            let Some((folder, package)) = owner.max_by_key(|(folder, _)| folder.iter().count()) else { continue };
            let (Ok(inner), Ok(file)) = (path.strip_prefix(folder), syn::parse_file(text)) else { continue };
            let module = module(package, inner);
            reader.add_documented(&file.attrs, path, &module);
            reader.add(&file.items, path, &module);
        }
        let Reader { mut tests, macros, .. } = reader;
        tests.0.extend(macros.tests());
        tests
    }
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

struct Reader<'s> {
    sources: &'s [(PathBuf, String)],
    tests: Tests,
    macros: Macros,
}

impl Reader<'_> {
    fn add(&mut self, items: &[Item], file: &Path, module: &str) {
        for item in items {
            match item {
                Item::Fn(function) => {
                    let path = format!("{module}::{}", function.sig.ident);
                    self.add_documented(&function.attrs, file, &path);
                    if is_test(&function.attrs) {
                        self.tests.0.insert(path);
                    } else {
                        self.macros.add_function(module, &function.sig.ident);
                    }
                }
                Item::Mod(inner) => {
                    let path = format!("{module}::{}", inner.ident);
                    self.add_documented(&inner.attrs, file, &path);
                    if let Some((_, items)) = &inner.content {
                        self.add(items, file, &path);
                    }
                }
                Item::Macro(item) => {
                    if let Some(name) = &item.ident {
                        self.add_documented(&item.attrs, file, &format!("{module}::{name}"));
                    }
                    self.macros.add(module, item);
                }
                _ => self.add_type(item, file, module),
            }
        }
    }

    /// Adds the doc tests of a type, of a trait, and of their functions.
    fn add_type(&mut self, item: &Item, file: &Path, module: &str) {
        let named = |name: &dyn ToString| format!("{module}::{}", name.to_string());
        match item {
            Item::Struct(item) => self.add_documented(&item.attrs, file, &named(&item.ident)),
            Item::Enum(item) => self.add_documented(&item.attrs, file, &named(&item.ident)),
            Item::Trait(item) => {
                self.add_documented(&item.attrs, file, &named(&item.ident));
                for inner in &item.items {
                    if let TraitItem::Fn(inner) = inner {
                        let path = format!("{}::{}", named(&item.ident), inner.sig.ident);
                        self.add_documented(&inner.attrs, file, &path);
                    }
                }
            }
            Item::Impl(item) => {
                let Type::Path(of) = &*item.self_ty else { return };
                let Some(of) = of.path.segments.last() else { return };
                for inner in &item.items {
                    if let ImplItem::Fn(inner) = inner {
                        let path = format!("{}::{}", named(&of.ident), inner.sig.ident);
                        self.add_documented(&inner.attrs, file, &path);
                    }
                }
            }
            _ => {}
        }
    }

    fn add_ui(&mut self, path: &Path) {
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        let errors = path.with_extension("stderr");
        let has_errors = self.sources.iter().any(|(other, _)| *other == errors);
        if folder == "pass" || (folder == "fail" && has_errors) {
            self.tests.0.insert(path.display().to_string());
        }
    }

    /// Adds the doc test of an item if its documentation has an example that runs, or that must not compile.
    fn add_documented(&mut self, attributes: &[Attribute], file: &Path, path: &str) {
        let docs: Vec<_> = attributes.iter().filter_map(|attribute| self.documentation(attribute, file)).collect();
        if has_example(&docs.join("\n")) {
            self.tests.0.insert(format!("{path} (doc test)"));
        }
    }

    /// Returns the text of a `#[doc = …]`, which may be an included file.
    fn documentation(&self, attribute: &Attribute, file: &Path) -> Option<String> {
        let Meta::NameValue(doc) = &attribute.meta else { return None };
        match &doc.value {
            _ if !doc.path.is_ident("doc") => None,
            Expr::Lit(text) => Some(text_of(&text.lit)?.trim_start().to_owned()),
            Expr::Macro(include) if include.mac.path.is_ident("include_str") => {
                let included = text_of(&syn::parse2(include.mac.tokens.clone()).ok()?)?;
                let included = normal(&file.parent()?.join(included));
                self.sources.iter().find(|(path, _)| *path == included).map(|(_, text)| text.clone())
            }
            _ => None,
        }
    }
}

fn text_of(literal: &Lit) -> Option<String> {
    if let Lit::Str(text) = literal { Some(text.value()) } else { None }
}

/// Returns the path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path {
        if part == ".." {
            normal.pop();
        } else {
            normal.push(part);
        }
    }
    normal
}

/// Returns whether the Markdown text has a Rust example that rustdoc runs, or that must not compile.
fn has_example(text: &str) -> bool {
    let skipped = ["ignore", "no_run", "text", "toml", "sql", "json", "sh", "console", "http", "lua", "yaml"];
    let mut in_block = false;
    for line in text.lines() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        in_block = !in_block;
        let words = || info.split([',', ' ']).filter(|word| !word.is_empty());
        let is_rust = words().all(|word| ["rust", "should_panic", "compile_fail"].contains(&word) || is_flag(word));
        if in_block && is_rust && words().all(|word| !skipped.contains(&word)) {
            return true;
        }
    }
    false
}

/// Returns whether the word of a code block's first line is an edition or an error code.
fn is_flag(word: &str) -> bool {
    word.starts_with("edition") || word.strip_prefix('E').is_some_and(|code| code.parse::<u16>().is_ok())
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

    #[test]
    fn tests_have_the_path_of_their_file_and_inline_modules() {
        let text = "#[tokio::test(flavor = \"x\")] async fn a() {} fn helper() {} \
            #[test] #[ignore] fn off() {} mod inner { #[test] fn b() {} }";
        let expected = ["p::a::a", "p::a::inner::b"].map(str::to_owned);
        assert_eq!(Tests::of([("src/a.rs", text)]).0, BTreeSet::from(expected));
        assert_eq!(module("p", Path::new("tests/suite/main.rs")), "p::suite");
        assert_eq!(module("p", Path::new("src/lib.rs")), "p");
    }

    #[test]
    fn ui_tests_have_the_path_of_their_file() {
        let source = "fn main() {}";
        let tests = Tests::of([
            ("tests/ui/fail/shown.rs", "does not parse"),
            ("tests/ui/fail/shown.stderr", "error"),
            ("tests/ui/fail/unknown.rs", source),
            ("tests/ui/pass/fine.rs", source),
            ("tests/ui/ui.rs", "#[test] fn runs() {}"),
        ]);
        let expected = ["p::ui::ui::runs", "tests/ui/fail/shown.rs", "tests/ui/pass/fine.rs"].map(str::to_owned);
        assert_eq!(tests.0, BTreeSet::from(expected), "a failure needs the expected error");
    }

    #[test]
    fn doc_tests_have_the_path_of_their_item() {
        let text = "//! ```\n//! run();\n//! ```\n\
            /// ```compile_fail,E0277\n/// bad();\n/// ```\nstruct A;\n\
            impl A {\n/// ```rust\n/// a();\n/// ```\nfn a() {}\n/// ```text\n/// b\n/// ```\nfn b() {} }\n\
            /// ```no_run\n/// never();\n/// ```\nfn c() {}\n\
            #[doc = include_str!(\"../docs/guide.md\")] mod guide {}\n\
            #[doc = include_str!(\"../docs/gone.md\")] mod gone {}\n";
        let tests =
            Tests::of([("src/lib.rs", text), ("docs/guide.md", "# Guide\n```text\nx\n```\n```rust\ny();\n```\n")]);
        let expected = ["p (doc test)", "p::A (doc test)", "p::A::a (doc test)", "p::guide (doc test)"];
        assert_eq!(tests.0, BTreeSet::from(expected.map(str::to_owned)));
    }
}
