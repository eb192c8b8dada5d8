//! The build of all targets, and a list of the targets that could not be built.
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::binary::{Binary, name};
use crate::heavy;
use crate::tools::cargo;

/// The result of the build.
#[derive(Debug, Default)]
pub(super) struct Built {
    failed: BTreeSet<String>,
    binaries: Vec<Binary>,
}

/// Builds all packages except the [heavy] one, with the features of the examples.
pub(super) fn all() -> Result<Built, Box<dyn Error>> {
    let everything = heavy::tested()?;
    of(&everything.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Continues after an error, so that all built targets can run. rustc's messages are printed to stderr.
///
/// Builds examples as programs, which tests start. With `--all-targets`, they and the benchmarks would be built once
/// more.
pub(super) fn of(packages: &[&str]) -> Result<Built, Box<dyn Error>> {
    let mut command = cargo(&["build", "--keep-going", "--locked"])?;
    command.args(packages).args(["--lib", "--bins", "--tests", "--examples", "--message-format=json"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut built = Built::default();
    for line in BufReader::new(child.stdout.take().ok_or("cargo has no stdout")?).lines() {
        // Build scripts may print other lines.
        if let Ok(message) = serde_json::from_str(&line?) {
            built.message(&message);
        }
    }
    if !child.wait()?.success() && built.failed.is_empty() {
        // A build script or cargo itself failed, and printed the reason to stderr.
        built.failed.insert("the workspace".to_owned());
    }
    built.binaries.sort_by_key(|binary| (weight(binary), binary.package.clone(), binary.target.clone()));
    Ok(built)
}

/// The packages whose tests take longest, the longest first: a long binary that starts last has a core for itself.
const LONGEST: [&str; 11] = [
    "idempotent-kafka",
    "idempotent-dynamodb",
    "idempotent-sqlx",
    "idempotent-rabbitmq",
    "idempotent-tests",
    "idempotent-redis",
    "idempotent-simulator",
    "idempotent-chaos",
    "idempotent-harness",
    "idempotent-redis-streams",
    "idempotent-tower",
];

fn weight(binary: &Binary) -> usize {
    let tests = matches!(binary.kind.as_str(), "test");
    let place = LONGEST.iter().position(|package| *package == binary.package);
    place.filter(|_| tests).unwrap_or(LONGEST.len())
}

impl Built {
    pub(super) fn failed(&self) -> &BTreeSet<String> {
        &self.failed
    }

    pub(super) fn binaries(&self) -> &[Binary] {
        &self.binaries
    }

    fn message(&mut self, message: &Value) {
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match text("/reason") {
            "compiler-message" => {
                eprint!("{}", text("/message/rendered"));
                if text("/message/level") == "error" {
                    let (package, _) = name(text("/package_id"));
                    let (kind, target) = (text("/target/kind/0"), text("/target/name"));
                    self.failed.insert(format!("{kind} `{target}` of {package}"));
                }
            }
            "compiler-artifact" => self.binaries.extend(Binary::of(message)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_failure_is_named_once_and_built_binaries_still_run() {
        let mut built = Built::default();
        let target = |kind: &str, name: &str| json!({"kind": [kind], "name": name});
        for level in ["error", "error", "warning"] {
            built.message(&json!({"reason": "compiler-message", "package_id": "path+file:///x/core#0.1.0",
                "target": target("test", "broken"), "message": {"level": level}}));
        }
        for (kind, name, test) in [("lib", "core", true), ("test", "fine", true), ("bin", "no test", false)] {
            built.message(&json!({"reason": "compiler-artifact", "package_id": "path+file:///x/y#core@0.1.0",
                "manifest_path": "/x/y/Cargo.toml", "executable": "/x/a", "target": target(kind, name),
                "profile": {"test": test}}));
        }
        assert_eq!(built.failed.iter().collect::<Vec<_>>(), ["test `broken` of core"]);
        let runnable: Vec<_> = built.binaries().iter().map(Binary::title).collect();
        assert_eq!(runnable, ["cargo test -p core --lib", "cargo test -p core --test fine"]);
    }
}
