//! Packages outside of the workspace, each with its own lock file, and the command `cargo xtask fix`.
use std::error::Error;
use std::process::Command;

use crate::tools::{Done, cargo, root, stream};

/// A store in the position of a user's crate: it only sees the public API.
pub(crate) const STORE: &str = "tests/external-store";
/// The package of cargo-fuzz.
pub(crate) const FUZZ: &str = "fuzz";

/// Returns a cargo command for one of these packages, with the workspace's target folder, which already contains most
/// dependencies.
pub(crate) fn outside(package: &str, subcommand: &str, arguments: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = cargo(&[subcommand, "--manifest-path", &format!("{package}/Cargo.toml")])?;
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.env("CARGO_TARGET_DIR", root()?.join("target"));
    }
    command.args(arguments);
    Ok(command)
}

/// Formats, and applies clippy's suggestions.
pub(crate) fn fix() -> Done {
    let clippy =
        ["clippy", "--fix", "--workspace", "--all-targets", "--all-features", "--allow-dirty", "--allow-staged"];
    let mut steps = vec![cargo(&clippy)?];
    // Formatting is the last step, because suggestions are not formatted.
    steps.push(cargo(&["fmt", "--all"])?);
    for package in [STORE, FUZZ] {
        steps.push(outside(package, "fmt", &[])?);
        // Updates a lock file to the current dependencies of the workspace's packages.
        steps.push(outside(package, "update", &["--workspace"])?);
    }
    for mut command in steps {
        if !stream(&mut command, |_| ())?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
