//! The command `cargo xtask release`: what a maintainer runs before a release. It publishes nothing.
use std::error::Error;
use std::process::Command;

use crate::check;
use crate::report::Report;
use crate::tools::{Done, capture, cargo, in_workspace, program, root, target};

const DENY: (&str, &str) = ("cargo-deny", "0.20.2");
const SEMVER: (&str, &str) = ("cargo-semver-checks", "0.51.0");

/// Runs all checks of a release, even after a failure.
pub(crate) fn run() -> Done {
    let mut report = Report::default();
    report.check("packages", check::packages::packages);
    // Without advisories, because their database is not in the repository. Two versions of one crate are allowed, and their
    // list would hide the findings.
    let mut deny = in_workspace(program(DENY.0, DENY.1)?)?;
    deny.args(["--locked", "check", "--allow", "duplicate", "bans", "licenses", "sources"]);
    report.command("dependencies, licenses and sources", deny);
    public_api(&mut report)?;
    // Each package is built with all features from its archive, in one target folder. Code of a feature may include a file that
    // the archive does not contain.
    let mut publish = cargo(&["publish", "--workspace", "--dry-run", "--locked", "--all-features"])?;
    publish.env("CARGO_TARGET_DIR", target()?.join("xtask/release"));
    report.shown("packages, built from their archives", publish);
    Ok(report.summary("release"))
}

/// Compares the public API with the newest released version.
fn public_api(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let tags = git(&["tag", "--list", "v*", "--sort=-version:refname"])?;
    if let Some(tag) = tags.lines().next() {
        println!("xtask release: comparing the public API with {tag}");
        let mut semver = in_workspace(program(SEMVER.0, SEMVER.1)?)?;
        semver.args(["semver-checks", "--workspace", "--baseline-rev", tag]);
        report.shown("public API", semver);
    } else if git(&["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
        let remedy = "a shallow clone has no tags: run `git fetch --unshallow --tags`";
        report.check("public API", || Ok(vec![remedy.to_owned()]));
    } else {
        report.skip("public API", "no release yet: nothing to compare");
    }
    Ok(())
}

fn git(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let (status, output) = capture(Command::new("git").args(arguments).current_dir(root()?))?;
    if status.success() { Ok(output) } else { Err(format!("git {}: {output}", arguments.join(" ")).into()) }
}
