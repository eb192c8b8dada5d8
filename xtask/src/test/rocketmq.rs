//! The lints, docs and tests of RocketMQ, whose client and broker take minutes to build.
use std::error::Error;
use std::process::Command;

use super::build::{self, libraries};
use super::jobs::{Job, LANES, Scratch, SelectedTests, Tally, run};
use crate::heavy::{FEATURE, PACKAGE};
use crate::setup;
use crate::setup::packaged;
use crate::tools::{Done, cargo};

/// The packages that have the feature of the client.
const PROGRAMS: [&str; 6] = [
    "idempotent-chaos",
    "idempotent-cli",
    "idempotent-consume",
    "idempotent-examples",
    "idempotent-payment-callback",
    "idempotent-tests",
];

const OF_PROGRAMS: [SelectedTests; 4] = [
    SelectedTests {
        what: "the examples on RocketMQ",
        package: "idempotent-tests",
        target: "examples",
        arguments: &["rocketmq::"],
    },
    SelectedTests {
        what: "the command line on RocketMQ",
        package: "idempotent-cli",
        target: "suite",
        arguments: &["dead::rocketmq::", "dead::arguments::"],
    },
    SelectedTests {
        what: "the URL of RocketMQ",
        package: "idempotent-cli",
        target: "idempotent",
        arguments: &["queue::"],
    },
    SelectedTests { what: "chaos on RocketMQ", package: "idempotent-chaos", target: "smoke", arguments: &["rocketmq"] },
];

/// Installs the broker, runs all tests of RocketMQ, and prints the result.
pub(crate) fn rocketmq() -> Done {
    if !(setup::all()? && packaged::rocketmq()?.is_dir()) {
        println!("xtask test rocketmq: what to run on is not there");
        return Ok(false);
    }
    let (mut tally, scratch) = (Tally::default(), Scratch::new());
    let arguments = with_client();
    let mut lints = cargo(&["clippy", "--locked", "--all-targets"])?;
    lints.args(&arguments).args(["--", "-D", "warnings"]);
    let mut alone = cargo(&["check", "--locked", "--package", "idempotent-rs", "--no-default-features"])?;
    alone.args(["--features", &format!("idempotent-rs/{FEATURE}")]);
    let mut docs = cargo(&["doc", "--no-deps", "--locked", "--package", PACKAGE])?;
    docs.env("RUSTDOCFLAGS", "-D warnings");
    let builds = [("lints", lints), ("facade with this feature alone", alone), ("docs", docs)];
    let build = |(title, command): (&str, Command)| Job { title: title.to_owned(), command, is_selection: false };
    run(builds.map(build).into(), 1, &scratch, &mut tally);
    run_tests(&arguments, &scratch, &mut tally)?;
    tally.tell();
    Ok(tally.is_good("test rocketmq"))
}

/// Returns cargo's arguments for the adapter and the programs, with the client.
fn with_client() -> Vec<String> {
    let packages = PROGRAMS.iter().chain([&PACKAGE]).flat_map(|package| ["--package".to_owned(), package.to_string()]);
    let features = PROGRAMS.map(|program| format!("{program}/{FEATURE}")).join(",");
    packages.chain(["--features".to_owned(), features]).collect()
}

/// Builds and runs the tests.
fn run_tests(arguments: &[String], scratch: &Scratch, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let built = build::of(&arguments)?.counted(tally);
    let libraries = libraries()?;
    let of_adapter = built.binaries().iter().filter(|binary| binary.package == PACKAGE);
    // The longest job is one of these, so they start first.
    let of_adapter =
        of_adapter.map(|binary| Job { title: binary.title(), command: binary.command(&libraries), is_selection: true });
    let mut jobs = of_adapter.collect::<Vec<_>>();
    for selected in &OF_PROGRAMS {
        jobs.push(selected.of(&built)?);
    }
    let bin = packaged::rocketmq()?;
    for job in &mut jobs {
        job.command.env("IDEMPOTENT_ROCKETMQ_BIN", &bin);
    }
    let mut docs = cargo(&["test", "--no-fail-fast", "--locked", "--doc"])?;
    docs.args(&arguments);
    jobs.push(Job { title: "doc tests".to_owned(), command: docs, is_selection: true });
    run(jobs, LANES, scratch, tally);
    Ok(())
}
