//! The minimum supported Rust version: no dependency may need a newer one, and CI tests this one.
use std::error::Error;
use std::fs;

use serde_json::Value;

use crate::tools::{cargo, root};

/// The workflow that tests each change.
const WORKFLOW: &str = ".github/workflows/ci.yml";

/// A version of the compiler: major, minor and patch.
type Version = [u64; 3];

/// Returns the packages of the workspace and all dependencies, on any platform.
///
/// # Errors
/// cargo cannot list the packages.
pub(crate) fn packages() -> Result<Vec<Value>, Box<dyn Error>> {
    let output = cargo(&["metadata", "--locked", "--format-version", "1"])?.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    let Value::Array(packages) = metadata["packages"].take() else {
        return Err("cargo metadata without packages".into());
    };
    Ok(packages)
}

/// Returns a line for each published package without a version, and a line for those whose version is too low.
pub(super) fn findings(published: &[&Value], all: &[Value]) -> Vec<String> {
    let name = |package: &Value| package["name"].as_str().unwrap_or_default().to_owned();
    let silent = published.iter().filter(|package| version(package).is_none());
    let mut found: Vec<_> = silent.map(|package| format!("{}: `rust-version` is missing", name(package))).collect();
    if let Some((needed, dependencies)) = highest(all) {
        let is_low = |package: &&&Value| version(package).is_some_and(|ours| ours < needed);
        let low: Vec<_> = published.iter().filter(is_low).map(|package| name(package)).collect();
        if !low.is_empty() {
            let (low, needed, dependencies) = (low.join(", "), shown(&needed), dependencies.join(", "));
            found.push(format!("`rust-version` of {low} is below {needed}, declared by {dependencies}"));
        }
    }
    found
}

/// Returns a line for each published package whose version is not the compiler of the workflow.
///
/// # Errors
/// The workflow cannot be read.
pub(super) fn untested(published: &[&Value]) -> Result<Vec<String>, Box<dyn Error>> {
    Ok(untested_by(&fs::read_to_string(root()?.join(WORKFLOW))?, published))
}

fn untested_by(workflow: &str, published: &[&Value]) -> Vec<String> {
    let tested = workflow.lines().find_map(|line| line.trim().strip_prefix("container: rust:")?.split('-').next());
    let declared =
        published.iter().filter_map(|package| Some((package["name"].as_str()?, package["rust_version"].as_str()?)));
    let other = declared.filter(|(_, version)| Some(*version) != tested);
    let tested = tested.unwrap_or("no compiler");
    other.map(|(name, version)| format!("{name}: `rust-version` is {version}, but {WORKFLOW} tests {tested}")).collect()
}

/// Describes the highest version that dependencies declare.
///
/// # Errors
/// cargo cannot list the packages.
pub(crate) fn needed() -> Result<String, Box<dyn Error>> {
    let packages = packages()?;
    let (needed, names) = highest(&packages).ok_or("no dependency declares a `rust-version`")?;
    Ok(format!("{}, declared by {}", shown(&needed), names.join(", ")))
}

/// Returns the highest version that dependencies declare, and their names.
fn highest(packages: &[Value]) -> Option<(Version, Vec<&str>)> {
    let dependencies = packages.iter().filter(|package| package["source"].is_string());
    let highest = dependencies.clone().filter_map(version).max()?;
    let names = dependencies.filter(|package| version(package) == Some(highest));
    Some((highest, names.filter_map(|package| package["name"].as_str()).collect()))
}

/// Returns the declared version; missing numbers are zero.
fn version(package: &Value) -> Option<Version> {
    let mut numbers = package["rust_version"].as_str()?.split('.').map(str::parse);
    let mut version = [0; 3];
    for number in &mut version {
        *number = numbers.next().unwrap_or(Ok(0)).ok()?;
    }
    Some(version)
}

fn shown(version: &Version) -> String {
    version.map(|number| number.to_string()).join(".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(ours: &Value) -> Vec<String> {
        let dependency =
            |name: &str, version: Value| json!({"name": name, "source": "registry", "rust_version": version});
        let dependencies = [
            dependency("old", json!("1.9")),
            dependency("new", json!("1.85")),
            dependency("same", json!("1.85.0")),
            dependency("silent", json!(null)),
        ];
        let ours = json!({"name": "ours", "source": null, "rust_version": ours});
        findings(&[&ours], &dependencies)
    }

    #[test]
    fn a_version_below_that_of_a_dependency_is_found() {
        assert_eq!(found(&json!("1.84.1")), ["`rust-version` of ours is below 1.85.0, declared by new, same"]);
        assert_eq!(found(&json!(null)), ["ours: `rust-version` is missing"]);
    }

    #[test]
    fn a_version_that_ci_does_not_test_is_found() {
        let ours = json!({"name": "ours", "rust_version": "1.85"});
        let of = |workflow: &str| untested_by(workflow, &[&ours]);
        assert_eq!(of("jobs:\n    container: rust:1.85-bookworm\n"), [""; 0]);
        assert_eq!(
            of("    container: rust:1-bookworm\n"),
            ["ours: `rust-version` is 1.85, but .github/workflows/ci.yml tests 1"]
        );
        assert_eq!(of(""), ["ours: `rust-version` is 1.85, but .github/workflows/ci.yml tests no compiler"]);
    }

    #[test]
    fn an_equal_and_a_newer_version_pass() {
        for version in ["1.85", "1.85.0", "1.100"] {
            assert_eq!(found(&json!(version)), [""; 0], "{version}");
        }
    }
}
