//! Builds everything, runs everything, counts.
mod build;
mod tally;

use std::process::Command;

use self::build::Built;
use self::tally::Tally;
use crate::external::external;
use crate::tools::{Done, cargo, stream};

const RUN: [&str; 3] = ["test", "--no-fail-fast", "--locked"];

/// All tests of all packages, then the doc tests, then those of the crate outside; `filter` goes to each test binary.
pub(crate) fn all(filter: &[&str]) -> Done {
    let mut tally = Tally::default();
    let built = build::all()?;
    for target in built.failed() {
        println!("xtask test: {target} could not be built");
    }
    tally.unbuilt(built.failed().len());
    let mut runs = runs(&built)?;
    runs.push(external("test", &["--no-fail-fast", "--locked"])?);
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

/// The sets of tests that take longer than CI's main run should.
#[allow(clippy::unnecessary_wraps, reason = "every command ends in the same way")]
pub(crate) fn extras() -> Done {
    println!("there are no extra sets yet: `cargo xtask test` runs every test");
    Ok(true)
}
