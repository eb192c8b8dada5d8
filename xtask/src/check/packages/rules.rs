//! The rules for a published package.
use serde_json::Value;

use super::Package;

/// The files that each package contains.
const REQUIRED: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", ROOT];
const ROOT: &str = "src/lib.rs";

/// The folders that no package contains, because users cannot run their contents.
const EXCLUDED: [&str; 4] = ["benches", "examples", "fuzz", "tests"];

/// The maximum size of a file in bytes, except for the `Cargo.lock` that cargo generates.
const FILE: u64 = 128 << 10;

/// The maximum size of a package in bytes, without compression.
const PACKAGE: u64 = 1 << 20;

/// The registry's limits of keywords: their number, and their length in bytes.
const KEYWORDS: (usize, usize) = (5, 20);

/// Returns a line for each rule that the package breaks.
pub(super) fn findings(package: &Package) -> Vec<String> {
    let name = package.described["name"].as_str().unwrap_or_default();
    let mut found = described(&package.described, name);
    if !lists_files(&package.manifest) {
        found.push("`include` is missing: the package would contain whatever its folder contains".to_owned());
    }
    found.extend(contents(package));
    found.into_iter().map(|finding| format!("{name}: {finding}")).collect()
}

/// Checks the fields that the registry and users read.
fn described(package: &Value, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_set = |field: &&str| package[*field].as_str().is_some_and(|text| !text.is_empty());
    for field in ["description", "license", "documentation", "readme"].iter().filter(|field| !is_set(field)) {
        found.push(format!("`{field}` is missing"));
    }
    let pages = format!("https://docs.rs/{name}");
    if is_set(&"documentation") && package["documentation"] != pages {
        found.push(format!("`documentation` is {}, not {pages}", package["documentation"]));
    }
    let texts = |field: &str| -> Vec<&str> {
        package[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let (keywords, (number, length)) = (texts("keywords"), KEYWORDS);
    if keywords.is_empty() || keywords.len() > number {
        found.push(format!("{} keywords: the registry accepts 1 to {number}", keywords.len()));
    }
    for keyword in keywords.into_iter().filter(|keyword| !is_keyword(keyword, length)) {
        found.push(format!("the registry does not accept the keyword `{keyword}`"));
    }
    if texts("categories").is_empty() {
        found.push("`categories` is missing".to_owned());
    }
    found
}

/// Returns whether the registry accepts the keyword.
fn is_keyword(keyword: &str, length: usize) -> bool {
    keyword.len() <= length
        && keyword.starts_with(|first: char| first.is_ascii_alphanumeric())
        && keyword.chars().all(|char| char.is_ascii_alphanumeric() || "-_+".contains(char))
}

/// Returns whether the manifest lists the files of the package.
fn lists_files(manifest: &str) -> bool {
    let package = manifest.lines().skip_while(|line| *line != "[package]").skip(1);
    package.take_while(|line| !line.starts_with('[')).any(|line| line.starts_with("include = ["))
}

/// Checks the files of the archive.
fn contents(package: &Package) -> Vec<String> {
    let mut found = Vec::new();
    let (files, unpacked) = (&package.archive.files, package.archive.unpacked);
    let contains = |name: &str| files.iter().any(|(file, _)| file == name);
    // A program has no library.
    let is_there = |required: &str| contains(required) || required == ROOT && contains("src/main.rs");
    let missing = REQUIRED.iter().filter(|required| !is_there(required));
    found.extend(missing.map(|required| format!("{required} is not in the package")));
    for (file, size) in files {
        if EXCLUDED.iter().any(|folder| file.split('/').next() == Some(folder)) {
            found.push(format!("{file} does not belong in the package"));
        }
        if *size > FILE && file != "Cargo.lock" {
            found.push(format!("{file} has {size} bytes, at most {FILE}"));
        }
    }
    if unpacked > PACKAGE {
        found.push(format!("the package has {unpacked} bytes without compression, at most {PACKAGE}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::archive::Archive;
    use super::*;

    fn sound() -> Package {
        let described = json!({
            "name": "some",
            "description": "A package",
            "license": "MIT OR Apache-2.0",
            "documentation": "https://docs.rs/some",
            "readme": "README.md",
            "keywords": ["idempotency"],
            "categories": ["asynchronous"],
        });
        let files = REQUIRED.into_iter().chain(["Cargo.lock"]).map(|file| (file.to_owned(), 10));
        Package {
            described,
            manifest: "[package]\nname = \"some\"\ninclude = [\"/src\"]\n\n[features]\n".to_owned(),
            archive: Archive { files: files.collect(), unpacked: 10_240 },
        }
    }

    #[test]
    fn a_sound_package_breaks_no_rule() {
        assert_eq!(findings(&sound()), [""; 0]);
    }

    #[test]
    fn a_missing_or_wrong_field_is_found() {
        for (field, wrong, finding) in [
            ("description", json!(null), "`description` is missing"),
            ("description", json!(""), "`description` is missing"),
            ("license", json!(null), "`license` is missing"),
            ("documentation", json!(null), "`documentation` is missing"),
            ("documentation", json!("https://docs.rs/other"), "`documentation` is \"https://docs.rs/other\", not"),
            ("readme", json!(null), "`readme` is missing"),
            ("keywords", json!([]), "0 keywords"),
            ("keywords", json!(["a", "b", "c", "d", "e", "f"]), "6 keywords"),
            ("keywords", json!(["two words"]), "the keyword `two words`"),
            ("keywords", json!(["-first"]), "the keyword `-first`"),
            ("keywords", json!(["exactly-once-delivery"]), "the keyword `exactly-once-delivery`"),
            ("categories", json!([]), "`categories` is missing"),
        ] {
            let mut package = sound();
            package.described[field] = wrong;
            one(&package, finding);
        }
    }

    #[test]
    fn a_manifest_without_a_list_of_files_is_found() {
        for manifest in ["[package]\nname = \"some\"\n", "[package]\n[features]\ninclude = []\n", ""] {
            let mut package = sound();
            package.manifest = manifest.to_owned();
            one(&package, "`include` is missing");
        }
    }

    #[test]
    fn a_missing_file_is_found() {
        for (nth, required) in REQUIRED.into_iter().enumerate() {
            let mut package = sound();
            package.archive.files.remove(nth);
            one(&package, &format!("{required} is not in the package"));
        }
    }

    #[test]
    fn tests_benchmarks_and_large_files_are_found() {
        for (file, size, finding) in [
            ("tests/suite/main.rs", 10, "tests/suite/main.rs does not belong"),
            ("benches/runs.rs", 10, "benches/runs.rs does not belong"),
            ("src/data.json", FILE + 1, "src/data.json has 131073 bytes"),
        ] {
            let mut package = sound();
            package.archive.files.push((file.to_owned(), size));
            one(&package, finding);
        }
        let mut package = sound();
        package.archive.files.push(("src/key/tests.rs".to_owned(), FILE));
        assert_eq!(findings(&package), [""; 0], "unit tests are part of the sources");
        package.archive.unpacked = PACKAGE + 1;
        one(&package, "1048577 bytes without compression");
    }

    /// Checks that there is one finding, with this text.
    fn one(package: &Package, text: &str) {
        let found = findings(package);
        assert!(found.len() == 1 && found[0].starts_with("some: ") && found[0].contains(text), "{text}: {found:?}");
    }
}
