//! The command `cargo xtask test`: builds all targets, runs a part of the tests, and counts the results.
mod build;
mod extras;
mod jobs;
mod part;
mod rocketmq;

use std::env;
use std::process::Command;
use std::time::Instant;

use clap::ValueEnum;

use self::build::{THREADS, libraries};
use self::jobs::{Job, LANES, Scratch, Tally};
use self::part::{Part, left_out};
use crate::budget;
use crate::heavy;
use crate::outside::{STORE, outside};
use crate::setup;
use crate::tools::{Done, cargo};

const RUN: [&str; 3] = ["test", "--no-fail-fast", "--locked"];

#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Other tests than those of `test`
    #[arg(conflicts_with_all = ["quick", "list", "filter"])]
    other: Option<Other>,
    /// Only the tests that need no server, in less than three minutes once built
    #[arg(long)]
    quick: bool,
    /// Prints what is left to `test extras`
    #[arg(long)]
    list: bool,
    /// Only tests with this in their name
    #[arg(last = true)]
    filter: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Other {
    /// The tests in a module named `extras`: whole sets of mutants, further configurations and servers, the demo's page in
    /// Chromium, 100,000 messages through four processes
    Extras,
    /// Lints, docs and tests of the RocketMQ adapter, whose client and broker take minutes to build; not in CI
    Rocketmq,
}

pub(crate) fn run(options: &Options) -> Done {
    match options.other {
        Some(Other::Extras) => extras::extras(),
        Some(Other::Rocketmq) => rocketmq::rocketmq(),
        None => all(options),
    }
}

/// The packages with another number of tests at a time. Those of Kafka and SQS mostly wait for a group or a visibility timeout.
/// The tests of DynamoDB share an emulator in Python, which on a loaded machine did not answer 8 of them within the 5 s of the store.
const AT_A_TIME: [(&str, &str); 3] = [("idempotent-dynamodb", "2"), ("idempotent-kafka", "8"), ("idempotent-sqs", "8")];

/// Runs the tests of all packages except the [heavy] one, then the doc tests, then those of the external crate. The
/// filter is passed to each test binary. A target that cannot be built is one failure, and does not stop the others.
fn all(options: &Options) -> Done {
    if !options.quick && !options.list && !setup::all()? {
        // Continue: most tests need no server, and the others name the missing program.
        println!("xtask test: something is not installed");
    }
    let mut tally = Tally::default();
    let (start, measured) = (Instant::now(), budget::Measured::begin());
    let built = build::all()?.counted(&mut tally);
    println!("xtask test: built in {} s", start.elapsed().as_secs());
    let libraries = libraries()?;
    let left = left_out(built.binaries(), &libraries)?;
    if options.list {
        left.iter().for_each(|line| println!("{line}"));
        return Ok(built.failed().is_empty());
    }
    let start = Instant::now();
    let scratch = Scratch::new();
    let part = if options.quick { Part::Quick } else { Part::Main };
    let jobs = built.binaries().iter().filter_map(|binary| {
        let mut command = part.command(binary, &libraries)?;
        command.args(&options.filter);
        if let Some((_, tests)) = AT_A_TIME.iter().find(|(package, _)| *package == binary.package) {
            command.env(THREADS, env::var_os(THREADS).unwrap_or_else(|| tests.into()));
            // The emulator answers the laws slowly on a loaded machine.
            command.env("IDEMPOTENT_KIT_LIMIT", "1200");
        }
        Some(Job { title: binary.title(), command, is_selection: false })
    });
    let mut jobs: Vec<_> = jobs.collect();
    if !options.quick {
        jobs.splice(0..0, docs(&options.filter)?);
    }
    jobs::run(jobs, LANES, &scratch, &mut tally);
    tally.tell();
    println!("xtask test: run in {} s; left to `cargo xtask test extras`:", start.elapsed().as_secs());
    left.iter().for_each(|line| println!("  {line}"));
    println!("xtask test: RocketMQ is left to `cargo xtask test rocketmq`");
    if options.filter.is_empty() && !options.quick {
        measured.end("test")?;
    }
    Ok(tally.is_good("test"))
}

/// Returns the doc tests, and the tests of the external crate. They start first, because rustdoc compiles them for a
/// while.
fn docs(filter: &[String]) -> Result<Vec<Job>, Box<dyn std::error::Error>> {
    let mut docs = cargo(&RUN)?;
    docs.args(heavy::tested()?).arg("--doc");
    let [test, no_fail_fast, locked] = RUN;
    let outside = outside(STORE, test, &[no_fail_fast, locked])?;
    let job = |(title, mut command): (&str, Command)| {
        command.arg("--").args(filter);
        Job { title: title.to_owned(), command, is_selection: false }
    };
    Ok([("doc tests", docs), (STORE, outside)].map(job).into())
}
