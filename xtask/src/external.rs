//! `tests/external-store`: a crate outside the workspace, as users have it, with a lock file of its own.
use std::error::Error;
use std::process::Command;

use crate::tools::{cargo, root};

const MANIFEST: &str = "tests/external-store/Cargo.toml";

/// cargo on that crate; into the workspace's target folder, where most of what it needs was built already.
pub(crate) fn external(subcommand: &str, arguments: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = cargo(&[subcommand, "--manifest-path", MANIFEST])?;
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.env("CARGO_TARGET_DIR", root()?.join("target"));
    }
    command.args(arguments);
    Ok(command)
}
