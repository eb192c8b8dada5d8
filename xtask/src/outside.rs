//! Packages outside the workspace, each with a lock file of its own.
use std::error::Error;
use std::process::Command;

use crate::tools::{cargo, root};

/// A store as users have it: it sees what is published of us.
pub(crate) const STORE: &str = "tests/external-store";
/// cargo-fuzz's front end.
pub(crate) const FUZZ: &str = "fuzz";

/// cargo on one of them; into the workspace's target folder, where most of what it needs was built already.
pub(crate) fn outside(package: &str, subcommand: &str, arguments: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = cargo(&[subcommand, "--manifest-path", &format!("{package}/Cargo.toml")])?;
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.env("CARGO_TARGET_DIR", root()?.join("target"));
    }
    command.args(arguments);
    Ok(command)
}
