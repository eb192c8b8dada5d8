//! The compile errors of the attribute. No file in `fail` may compile. The files in `pass` must compile and run. They
//! are modules here, so that clippy checks them, too. `tests/integration/suite/attribute` has more forms of handlers.
//!
//! The texts of rustc change with each release. With the pinned toolchain, each diagnostic must equal its `.stderr`
//! file (`TRYBUILD=overwrite` updates these files). With other toolchains, or with `IDEMPOTENT_UI=text`, a diagnostic
//! must contain the text of its first line, `// expect: …`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

macro_rules! pass {
    ($($name:ident in $path:literal)*) => {
        $(#[path = $path] mod $name;)*

        #[test]
        fn every_passing_case_is_run() {
            $($name::main();)*
            let run = BTreeSet::from([$(stringify!($name).to_owned()),*]);
            assert_eq!(run, cases("pass").into_iter().map(|(name, _)| name).collect());
        }
    };
}
pass! {
    arguments in "pass/arguments.rs"
    block in "pass/block.rs"
    http_imports in "pass/http_imports.rs"
    lints in "pass/lints.rs"
    hygiene in "pass/hygiene.rs"
    prelude in "pass/prelude.rs"
    scenes in "pass/scenes.rs"
    transaction in "pass/transaction.rs"
}

const PINNED: &str = "rustc 1.95.";

#[test]
fn each_mistake_is_reported() {
    let rustc = Command::new("rustc").arg("--version").output().expect("rustc runs").stdout;
    let pinned = String::from_utf8_lossy(&rustc).starts_with(PINNED);
    if pinned && env::var_os("IDEMPOTENT_UI").is_none_or(|mode| mode != "text") {
        trybuild::TestCases::new().compile_fail("fail/*.rs");
    } else {
        by_text();
    }
}

/// Checks every case as a binary of one crate.
fn by_text() {
    let cases = cases("fail");
    let diagnostics = check(&cases);
    let mut wrong = String::new();
    for (name, path) in &cases {
        let source = fs::read_to_string(path).unwrap();
        let want = source.lines().next().and_then(|line| line.strip_prefix("// expect: "));
        let want = want.unwrap_or_else(|| panic!("{name} does not start with `// expect: …`"));
        match diagnostics.get(name) {
            None => writeln!(wrong, "{name} compiles").unwrap(),
            Some(text) if !text.contains(want) => writeln!(wrong, "{name}: no `{want}` in\n{text}").unwrap(),
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Name and path of each case in `tests/ui/{folder}`.
fn cases(folder: &str) -> BTreeSet<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let cases: BTreeSet<_> =
        sources.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect();
    assert!(!cases.is_empty(), "no cases found");
    cases
}

/// The errors of each case that has any.
fn check(cases: &BTreeSet<(String, PathBuf)>) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let facade = root.join("../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui-text");
    fs::create_dir_all(&folder).unwrap();
    let mut manifest = format!(
        r#"[workspace]
[package]
name = "ui-text"
version = "0.0.0"
edition = "2024"
publish = false
[dependencies]
{} = {{ path = {facade:?}, features = ["axum", "mq"] }}
async-trait = "0.1"
axum = {{ version = "0.8", default-features = false, features = ["json"] }}
tokio = {{ version = "1", features = ["full"] }}
"#,
        "idempotent-rs",
    );
    for (name, path) in cases {
        write!(manifest, "[[bin]]\nname = {name:?}\npath = {path:?}\n").unwrap();
    }
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // The versions the workspace was tested with.
    let lock = root.ancestors().map(|folder| folder.join("Cargo.lock")).find(|lock| lock.exists());
    if let Some(lock) = lock {
        fs::copy(lock, folder.join("Cargo.lock")).unwrap();
    }
    let output = Command::new(env!("CARGO"))
        .args(["check", "--bins", "--keep-going", "--message-format=json", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .expect("cargo runs");
    let mut errors = BTreeMap::<String, String>::new();
    let mut finished = false;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect("cargo speaks JSON");
        finished |= message["reason"] == "build-finished";
        if message["message"]["level"] == "error" {
            let name = message["target"]["name"].as_str().unwrap_or_default().to_owned();
            errors.entry(name).or_default().push_str(message["message"]["rendered"].as_str().unwrap_or_default());
        }
    }
    assert!(finished, "cargo did not get to the cases:\n{}", String::from_utf8_lossy(&output.stderr));
    errors
}
