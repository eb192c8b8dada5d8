//! Builds everything, runs everything, counts.
mod build;
mod tally;

use std::process::Command;

use self::build::Built;
use self::tally::Tally;
use crate::outside::{STORE, outside};
use crate::setup;
use crate::setup::browser;
use crate::setup::flavours::{self, FLAVOURS};
use crate::tools::{Done, cargo, root, stream};

const RUN: [&str; 3] = ["test", "--no-fail-fast", "--locked"];

/// All tests of all packages, then the doc tests, then those of the crate outside; `filter` goes to each test binary.
pub(crate) fn all(filter: &[&str]) -> Done {
    if !setup::all()? {
        // Not the end: most tests need no server, and those that do say what they miss.
        println!("xtask test: something is not installed");
    }
    let mut tally = Tally::default();
    let built = build::all()?;
    for target in built.failed() {
        println!("xtask test: {target} could not be built");
    }
    tally.unbuilt(built.failed().len());
    let mut runs = runs(&built)?;
    runs.push(outside(STORE, "test", &["--no-fail-fast", "--locked"])?);
    for mut command in runs {
        command.arg("--").args(filter);
        let status = stream(&mut command, |line| tally.line(line))?;
        tally.end(status.success());
    }
    println!("xtask test: {} passed, {} failed", tally.passed(), tally.failed());
    Ok(tally.failed() == 0 && tally.passed() > 0)
}

/// One run for the whole workspace; where something could not be built, one for each package, of what could.
fn runs(built: &Built) -> Result<Vec<Command>, Box<dyn std::error::Error>> {
    if built.failed().is_empty() {
        let [test, no_fail_fast, locked] = RUN;
        return Ok(vec![
            cargo(&[test, no_fail_fast, locked, "--workspace", "--all-targets"])?,
            cargo(&[test, no_fail_fast, locked, "--workspace", "--doc"])?,
        ]);
    }
    let mut runs = Vec::new();
    for (package, targets) in built.packages() {
        let mut run = cargo(&RUN)?;
        run.args(["--package", package]).args(targets);
        runs.push(run);
    }
    Ok(runs)
}

/// The sets of tests that take longer than CI's main run should, or need more.
pub(crate) fn extras() -> Done {
    if !setup::all()? || !flavours::all()? || !browser::all()? {
        println!("xtask test extras: what to run on is not there");
        return Ok(false);
    }
    let mut tally = Tally::default();
    in_browser(&mut tally)?;
    for flavour in &FLAVOURS {
        for package in on_redis()? {
            println!("xtask test extras: {package} on {}", flavour.version);
            let mut command = cargo(&RUN)?;
            command.args(["--package", package.name]).args(package.targets);
            // Ways of ours that are no other on another server.
            command.args(["--", "--skip", "without_a_cache::", "--skip", "with_the_scripts_of_redis_6::"]);
            command.env("IDEMPOTENT_REDIS_SERVER", flavour.path()?).env("IDEMPOTENT_REDIS_VERSION", flavour.version);
            let status = stream(&mut command, |line| tally.line(line))?;
            tally.end(status.success());
        }
    }
    println!("xtask test extras: {} passed, {} failed", tally.passed(), tally.failed());
    Ok(tally.failed() == 0 && tally.passed() > 0)
}

/// The demo's page: the tests that `test` passes over.
fn in_browser(tally: &mut Tally) -> Result<(), Box<dyn std::error::Error>> {
    println!("xtask test extras: the page of rest_axum in Chromium");
    let of_facade = ["--locked", "--package", "idempotent-rs"];
    let status = stream(cargo(&["build"])?.args(of_facade).args(["--example", "rest_axum"]), |_| {})?;
    if !status.success() {
        tally.end(false);
        return Ok(());
    }
    let mut command = cargo(&RUN)?;
    command.args(["--package", "idempotent-rs", "--test", "browser", "--", "--ignored"]);
    let before = tally.passed() + tally.failed();
    let status = stream(&mut command, |line| tally.line(line))?;
    // None of them is a failure, too.
    tally.end(status.success() && tally.passed() + tally.failed() > before);
    Ok(())
}

/// What is run on each flavour of Redis.
struct OnRedis {
    name: &'static str,
    targets: &'static [&'static str],
}

impl std::fmt::Display for OnRedis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const ON_REDIS: [OnRedis; 2] = [
    // That the servers are of the flavour that was asked for, among others.
    OnRedis { name: "idempotent-testkit", targets: &["--test", "servers"] },
    OnRedis { name: "idempotent-redis", targets: &[] },
];

fn on_redis() -> Result<Vec<&'static OnRedis>, Box<dyn std::error::Error>> {
    let root = root()?;
    Ok(ON_REDIS.iter().filter(|package| root.join(package.name).join("Cargo.toml").exists()).collect())
}
