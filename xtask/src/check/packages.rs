//! The packages that will be published: their manifests, the contents of their archives, and the number of crates that a new
//! user builds first. Each crate costs seconds before the first run.
//!
//! No rule requires `homepage` and `repository`, because the address of the repository is not known yet.
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::heavy;
use crate::report::Findings;
use crate::tools::{capture, cargo, root, target};

/// A package, its role for a new user, and the maximum number of crates that it may need, including itself.
const FIRST: [(&str, &str, usize); 2] =
    [("idempotent-first", "a program on the memory store", 60), ("idempotent-consume", "README's first command", 130)];

/// The workflow that tests each change.
const WORKFLOW: &str = ".github/workflows/ci.yml";

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

/// Returns a line for each package that needs too many crates.
pub(crate) fn first_build() -> Findings {
    let mut findings = Vec::new();
    for (package, what, limit) in FIRST {
        let tree = ["tree", "--locked", "--package", package, "--edges", "normal,build", "--prefix", "none"];
        let output = cargo(&tree)?.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        // Cargo reports downloads on the other stream.
        let tree = String::from_utf8_lossy(&output.stdout);
        // Cargo marks repetitions with `(*)`.
        let crates = tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty());
        let crates = crates.collect::<BTreeSet<_>>().len();
        if crates > limit {
            findings.push(format!("{package}, {what}: {crates} crates, at most {limit}"));
        }
    }
    Ok(findings)
}

/// A package as its users get it.
#[derive(Debug)]
struct Package {
    /// The description of the package by `cargo metadata`.
    described: Value,
    /// The text of the manifest. `cargo metadata` does not print `include`.
    manifest: String,
    /// The path of each file in the archive, and its size.
    files: Vec<(String, u64)>,
}

/// Returns a line for each rule that a package breaks.
pub(crate) fn packages() -> Findings {
    let mut published = heavy::packages()?;
    published.retain(|package| package["publish"].is_null());
    if published.len() < 2 {
        return Err("packages: few packages found; adapt the check to the new manifests".into());
    }
    pack(&published)?;
    let workflow = fs::read_to_string(root()?.join(WORKFLOW))?;
    let mut found = Vec::new();
    for described in published {
        found.extend(findings(&read(described)?, &workflow));
    }
    Ok(found)
}

/// Creates the archives of all packages in one call, in which packages of the workspace find each other.
fn pack(published: &[Value]) -> Result<(), Box<dyn Error>> {
    let names = published.iter().filter_map(|package| package["name"].as_str());
    let arguments: Vec<_> = ["package", "--no-verify", "--allow-dirty", "--locked"]
        .into_iter()
        .chain(names.flat_map(|name| ["--package", name]))
        .collect();
    // With a network, cargo asks the registry about each dependency, which takes half a minute.
    if capture(cargo(&arguments)?.arg("--offline"))?.0.success() {
        return Ok(());
    }
    let (status, output) = capture(&mut cargo(&arguments)?)?;
    if status.success() { Ok(()) } else { Err(output.into()) }
}

fn read(described: Value) -> Result<Package, Box<dyn Error>> {
    let text = |field: &str| described[field].as_str().ok_or_else(|| format!("cargo metadata without `{field}`"));
    let name = format!("{}-{}", text("name")?, text("version")?);
    let manifest = fs::read_to_string(text("manifest_path")?)?;
    let archive = target()?.join("package").join(format!("{name}.crate"));
    let (status, list) = capture(Command::new("tar").args(["--list", "--verbose", "--gzip", "--file"]).arg(&archive))?;
    if !status.success() {
        return Err(format!("{}: {list}", archive.display()).into());
    }
    // `-rw-r--r-- 0/0  1079 2006-07-24 01:21 name-0.1.0/LICENSE-MIT`
    let file = |line: &str| {
        let size = line.split_whitespace().nth(2)?.parse().ok()?;
        Some((line.split_once(&format!(" {name}/"))?.1.to_owned(), size))
    };
    Ok(Package { files: list.lines().filter_map(file).collect(), manifest, described })
}

/// Returns a line for each rule that the package breaks.
fn findings(package: &Package, workflow: &str) -> Vec<String> {
    let name = package.described["name"].as_str().unwrap_or_default();
    let mut found = described(&package.described, name);
    if !lists_files(&package.manifest) {
        found.push("`include` is missing: the package would contain whatever its folder contains".to_owned());
    }
    // With this compiler, cargo refuses dependencies that need a newer one.
    let version = package.described["rust_version"].as_str().unwrap_or_default();
    let row = format!("rust: \"{version}\"");
    let is_tested = |line: &str| line.contains(&row) && line.split([' ', '"']).any(|word| word == name);
    if !workflow.lines().any(is_tested) {
        found.push(format!("`rust-version` is `{version}`, with which {WORKFLOW} does not test the package"));
    }
    found.extend(contents(&package.files));
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
fn contents(files: &[(String, u64)]) -> Vec<String> {
    let mut found = Vec::new();
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
    let unpacked: u64 = files.iter().map(|(_, size)| size).sum();
    if unpacked > PACKAGE {
        found.push(format!("the package has {unpacked} bytes without compression, at most {PACKAGE}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TESTED: &str = "- { rust: \"1.85\", packages: \"-p other -p some\" }\n";

    fn sound() -> Package {
        let described = json!({
            "name": "some",
            "description": "A package",
            "license": "MIT OR Apache-2.0",
            "documentation": "https://docs.rs/some",
            "readme": "README.md",
            "keywords": ["idempotency"],
            "categories": ["asynchronous"],
            "rust_version": "1.85",
        });
        let files = REQUIRED.into_iter().chain(["Cargo.lock", "src/key/tests.rs"]);
        Package {
            described,
            manifest: "[package]\nname = \"some\"\ninclude = [\"/src\"]\n\n[features]\n".to_owned(),
            files: files.map(|file| (file.to_owned(), 10)).collect(),
        }
    }

    /// Checks that there is one finding after the change, with this text.
    fn one(text: &str, change: impl FnOnce(&mut Package)) {
        let mut package = sound();
        change(&mut package);
        let found = findings(&package, TESTED);
        assert!(found.len() == 1 && found[0].starts_with("some: ") && found[0].contains(text), "{text}: {found:?}");
    }

    #[test]
    fn a_sound_package_breaks_no_rule() {
        assert_eq!(findings(&sound(), TESTED), [""; 0]);
        assert_eq!(findings(&sound(), &TESTED.replace("1.85", "1.86")).len(), 1, "CI tests another version");
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
            ("rust_version", json!(null), "`rust-version` is ``"),
            ("rust_version", json!("1.84"), "`rust-version` is `1.84`"),
        ] {
            one(finding, |package| package.described[field] = wrong);
        }
    }

    #[test]
    fn a_missing_large_or_wrong_file_is_found() {
        for manifest in ["[package]\nname = \"some\"\n", "[package]\n[features]\ninclude = []\n", ""] {
            one("`include` is missing", |package| package.manifest = manifest.to_owned());
        }
        for required in REQUIRED {
            let finding = format!("{required} is not in the package");
            one(&finding, |package| package.files.retain(|(file, _)| file != required));
        }
        for (file, size, finding) in [
            ("tests/suite/main.rs", 10, "tests/suite/main.rs does not belong"),
            ("benches/runs.rs", 10, "benches/runs.rs does not belong"),
            ("src/data.json", FILE + 1, "src/data.json has 131073 bytes"),
            ("Cargo.lock", PACKAGE, "1048636 bytes without compression"),
        ] {
            one(finding, |package| package.files.push((file.to_owned(), size)));
        }
    }
}
