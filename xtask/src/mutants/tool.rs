//! The program cargo-mutants, and the clone that it works on.
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::areas::Area;
use crate::tools::{capture, program, ran, root, target};

const VERSION: &str = "27.1.0";

/// The program, and the clone.
#[derive(Debug)]
pub(super) struct Tool {
    program: PathBuf,
    tree: PathBuf,
    commit: String,
}

impl Tool {
    /// Installs the program, and updates the clone to the last commit.
    pub(super) fn ready() -> Result<Self, Box<dyn Error>> {
        let folder = target()?.join("mutants");
        fs::create_dir_all(&folder)?;
        let program = program("cargo-mutants", VERSION)?;
        let (tree, own) = (folder.join("tree"), root()?);
        if !tree.join(".git").exists() {
            ran(Command::new("git").args(["clone", "--quiet", "--shared"]).arg(&own).arg(&tree))?;
        }
        let git = |words: &[&str]| ran(Command::new("git").arg("-C").arg(&tree).args(words));
        git(&["fetch", "--quiet", "origin", "HEAD"])?;
        git(&["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])?;
        let (_, commit) = capture(Command::new("git").arg("-C").arg(&tree).args(["rev-parse", "--short=10", "HEAD"]))?;
        Ok(Self { program, commit: commit.trim().to_owned(), tree })
    }

    /// Returns the abbreviated commit that is mutated.
    pub(super) fn commit(&self) -> &str {
        &self.commit
    }

    /// Returns the mutants of the files, as cargo-mutants lists them.
    pub(super) fn list(&self, area: &Area, files: &[String]) -> Result<Vec<Value>, Box<dyn Error>> {
        let mut command = self.in_tree(Command::new(&self.program));
        command.args(["mutants", "--list", "--json", "--package", area.package]);
        command.args(files.iter().flat_map(|file| ["--file", file]));
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("cargo-mutants --list: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Returns the folder of the clone.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Restores the source in the clone.
    pub(super) fn restore(&self) -> Result<(), Box<dyn Error>> {
        ran(Command::new("git").arg("-C").arg(&self.tree).args(["checkout", "--quiet", "--force", "."]))
    }

    /// Runs a command in the clone, with its target folder.
    pub(super) fn in_tree(&self, mut command: Command) -> Command {
        command.current_dir(&self.tree).env_remove("CARGO_TARGET_DIR");
        // Most of the time of a mutant is its build.
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_DEV_DEBUG", "none");
        command
    }
}
