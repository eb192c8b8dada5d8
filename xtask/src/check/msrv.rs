//! The minimum supported Rust version: no dependency may need a newer one.
//!
//! Clippy's lint `incompatible_msrv`, which `clippy, everything` runs, checks the use of the standard library.
use std::error::Error;

use serde_json::Value;

use crate::tools::cargo;

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

/// Returns a line for each published package without a version, or with a lower one than a dependency declares.
pub(super) fn findings(published: &[&Value], all: &[Value]) -> Vec<String> {
    let highest = highest(all);
    let finding = |package: &&Value| {
        let name = package["name"].as_str().unwrap_or_default();
        match (version(package), &highest) {
            (None, _) => Some(format!("{name}: `rust-version` is missing")),
            (Some(ours), Some((needed, names))) if ours < *needed => {
                Some(format!("{name}: `rust-version` is below {}, which {} need", shown(needed), names.join(", ")))
            }
            _ => None,
        }
    };
    published.iter().filter_map(finding).collect()
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
        assert_eq!(found(&json!("1.84.1")), ["ours: `rust-version` is below 1.85.0, which new, same need"]);
        assert_eq!(found(&json!(null)), ["ours: `rust-version` is missing"]);
    }

    #[test]
    fn an_equal_and_a_newer_version_pass() {
        for version in ["1.85", "1.85.0", "1.100"] {
            assert_eq!(found(&json!(version)), [""; 0], "{version}");
        }
    }
}
