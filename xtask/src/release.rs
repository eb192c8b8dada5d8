//! The command `cargo xtask release`: what a maintainer runs before a release. It publishes nothing.
use std::error::Error;
use std::path::Path;
use std::process::Command;

use crate::check;
use crate::report::{Outcome, Report};
use crate::tools::{Done, capture, cargo, program, root, stream, target};

const DENY: (&str, &str) = ("cargo-deny", "0.20.2");
const SEMVER: (&str, &str) = ("cargo-semver-checks", "0.51.0");

/// Runs all checks of a release, even after a failure.
///
/// # Errors
/// The paths of the workspace are unknown.
pub(crate) fn run() -> Done {
    let mut report = Report::default();
    report.check("packages", || check::package_rules().map(Outcome::of));
    report.check("dependencies, licenses and sources", dependencies);
    report.check("public API", public_api);
    report.check("packages, built from their archives", archives);
    Ok(report.summary("release"))
}

/// Checks bans, licenses and sources, but no advisories, because their database is not in the repository.
fn dependencies() -> Result<Outcome, Box<dyn Error>> {
    // Two versions of one crate are allowed, and their list would hide the findings.
    let check = ["deny", "--locked", "check", "--allow", "duplicate", "bans", "licenses", "sources"];
    let (status, output) = capture(&mut with(DENY, &check)?)?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed(output) })
}

/// Compares the public API with the newest released version.
fn public_api() -> Result<Outcome, Box<dyn Error>> {
    let tags = git(&["tag", "--list", "v*", "--sort=-version:refname"])?;
    let Some(tag) = tags.lines().next() else {
        if git(&["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
            return Ok(Outcome::Failed("a shallow clone has no tags: run `git fetch --unshallow --tags`".to_owned()));
        }
        return Ok(Outcome::Skipped("no release yet: nothing to compare".to_owned()));
    };
    println!("xtask release: comparing the public API with {tag}");
    shown(&mut with(SEMVER, &["semver-checks", "--workspace", "--baseline-rev", tag])?)
}

/// Builds each package with all features from its archive, in one target folder. Code of a feature may include a file that
/// the archive does not contain.
fn archives() -> Result<Outcome, Box<dyn Error>> {
    let mut publish = cargo(&["publish", "--workspace", "--dry-run", "--locked", "--all-features"])?;
    shown(publish.env("CARGO_TARGET_DIR", target()?.join("xtask/release")))
}

/// Runs a command that takes minutes, and shows its output at once.
fn shown(command: &mut Command) -> Result<Outcome, Box<dyn Error>> {
    let status = stream(command, |_| {})?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed("see the output above".to_owned()) })
}

/// Returns a command of cargo that a program of this version provides, and installs the program if it is missing.
fn with((name, version): (&str, &str), arguments: &[&str]) -> Result<Command, Box<dyn Error>> {
    let program = program(name, version)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = program.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    let mut command = cargo(arguments)?;
    command.env("PATH", std::env::join_paths(folders)?);
    Ok(command)
}

fn git(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let (status, output) = capture(Command::new("git").args(arguments).current_dir(root()?))?;
    if status.success() { Ok(output) } else { Err(format!("git {}: {output}", arguments.join(" ")).into()) }
}
