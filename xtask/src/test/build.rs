//! Builds everything, and knows which target could be built and which could not.
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::tools::cargo;

/// What came of the build.
#[derive(Debug, Default)]
pub(super) struct Built {
    failed: BTreeSet<String>,
    /// cargo's arguments for each target that can be run, by package.
    packages: BTreeMap<String, Vec<String>>,
}

/// Goes on after an error, so that what can be run is run. rustc's messages go to stderr as ever.
pub(super) fn all() -> Result<Built, Box<dyn Error>> {
    let arguments = ["build", "--workspace", "--all-targets", "--keep-going", "--locked"];
    let mut command = cargo(&arguments)?;
    let mut child = command.arg("--message-format=json").stdout(Stdio::piped()).spawn()?;
    let mut built = Built::default();
    for line in BufReader::new(child.stdout.take().ok_or("cargo has no stdout")?).lines() {
        // Build scripts may write lines of their own.
        if let Ok(message) = serde_json::from_str(&line?) {
            built.message(&message);
        }
    }
    if !child.wait()?.success() && built.failed.is_empty() {
        // A build script, or cargo itself: it said why on stderr.
        built.failed.insert("the workspace".to_owned());
    }
    Ok(built)
}

impl Built {
    pub(super) fn failed(&self) -> &BTreeSet<String> {
        &self.failed
    }

    pub(super) fn packages(&self) -> &BTreeMap<String, Vec<String>> {
        &self.packages
    }

    fn message(&mut self, message: &Value) {
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (package, kind, name) = (text("/package_id"), text("/target/kind/0"), text("/target/name"));
        match text("/reason") {
            "compiler-message" => {
                eprint!("{}", text("/message/rendered"));
                if text("/message/level") == "error" {
                    self.failed.insert(format!("{kind} `{name}` of {}", short(package)));
                }
            }
            "compiler-artifact" if message.pointer("/profile/test") == Some(&Value::Bool(true)) => {
                let targets = self.packages.entry(package.to_owned()).or_default();
                match kind {
                    "test" | "bin" | "example" | "bench" => targets.extend([format!("--{kind}"), name.to_owned()]),
                    _ => targets.push("--lib".to_owned()),
                }
            }
            _ => {}
        }
    }
}

/// `path+file:///somewhere/idempotent-core#0.1.0` is idempotent-core.
fn short(package_id: &str) -> &str {
    let (place, version) = package_id.rsplit_once('#').unwrap_or((package_id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_failed_is_named_once_and_what_was_built_can_be_run() {
        let mut built = Built::default();
        let target = |kind: &str, name: &str| json!({"kind": [kind], "name": name});
        for level in ["error", "error", "warning"] {
            built.message(&json!({"reason": "compiler-message", "package_id": "path+file:///x/core#0.1.0",
                "target": target("test", "broken"), "message": {"level": level}}));
        }
        for (kind, name) in [("lib", "core"), ("test", "fine")] {
            built.message(&json!({"reason": "compiler-artifact", "package_id": "path+file:///x/y#core@0.1.0",
                "target": target(kind, name), "profile": {"test": true}}));
        }
        built.message(&json!({"reason": "compiler-artifact", "package_id": "p", "target": target("bin", "not a test"),
            "profile": {"test": false}}));
        assert_eq!(built.failed.iter().collect::<Vec<_>>(), ["test `broken` of core"]);
        let runnable: Vec<_> = built.packages.into_values().collect();
        assert_eq!(runnable, [["--lib", "--test", "fine"]]);
    }

    #[test]
    fn a_package_is_named_by_its_name_or_its_folder() {
        assert_eq!(short("path+file:///x/idempotent-core#0.1.0"), "idempotent-core");
        assert_eq!(short("path+file:///x/y#idempotent-rs@0.1.0"), "idempotent-rs");
    }
}
