//! The command `cargo xtask test`: builds all targets, runs a part of the tests, and counts the results.
mod binary;
mod build;
mod extras;
mod lanes;
mod part;
mod rocketmq;
mod scratch;
mod selected;
mod tally;

use std::env;
use std::time::Instant;

use self::binary::{THREADS, libraries};
use self::build::Built;
pub(crate) use self::extras::extras;
use self::lanes::{Job, LANES};
use self::part::{Part, left_out};
pub(crate) use self::rocketmq::rocketmq;
use self::scratch::Scratch;
use self::tally::Tally;
use crate::budget;
use crate::heavy;
use crate::outside::{STORE, outside};
use crate::setup;
use crate::tools::{Done, cargo};

const RUN: [&str; 3] = ["test", "--no-fail-fast", "--locked"];

/// The options of `test`.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Options {
    quick: bool,
    list: bool,
    filter: Vec<String>,
}

impl Options {
    /// Parses the options.
    ///
    /// # Errors
    /// The argument is unknown. The error lists the known ones.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                "--" => options.filter = arguments.by_ref().map(|word| (*word).to_owned()).collect(),
                other => {
                    let known = crate::unknown(other, &["extras", "rocketmq", "--quick", "--list"]);
                    return Err(format!("{known}; to run only some tests: `cargo xtask test -- {other}`"));
                }
            }
        }
        Ok(options)
    }

    fn part(&self) -> Part {
        if self.quick { Part::Quick } else { Part::Main }
    }
}

/// The packages with another number of tests at a time. Those of Kafka and SQS mostly wait for a group or a visibility timeout.
/// The tests of DynamoDB share an emulator in Python, which on a loaded machine did not answer 8 of them within the 5 s of the store.
const AT_A_TIME: [(&str, &str); 3] = [("idempotent-dynamodb", "2"), ("idempotent-kafka", "8"), ("idempotent-sqs", "8")];

/// Runs the tests of all packages except the [heavy] one, then the doc tests, then those of the external crate. The
/// filter is passed to each test binary. A target that cannot be built is one failure, and does not stop the others.
pub(crate) fn all(options: &Options) -> Done {
    if !options.quick && !options.list && !setup::all()? {
        // Continue: most tests need no server, and the others name the missing program.
        println!("xtask test: something is not installed");
    }
    let mut tally = Tally::default();
    let (start, measured) = (Instant::now(), budget::Measured::begin());
    let built = counted(build::all()?, &mut tally);
    println!("xtask test: built in {} s", start.elapsed().as_secs());
    let libraries = libraries()?;
    let left = left_out(built.binaries(), &libraries)?;
    if options.list {
        left.iter().for_each(|line| println!("{line}"));
        return Ok(built.failed().is_empty());
    }
    let start = Instant::now();
    let scratch = Scratch::new();
    let jobs = built.binaries().iter().filter_map(|binary| {
        let mut command = options.part().command(binary, &libraries)?;
        command.args(&options.filter);
        if let Some((_, tests)) = AT_A_TIME.iter().find(|(package, _)| *package == binary.package) {
            command.env(THREADS, env::var_os(THREADS).unwrap_or_else(|| tests.into()));
            // The emulator answers the laws slowly on a loaded machine.
            command.env("IDEMPOTENT_KIT_LIMIT", "1200");
        }
        scratch.tell(&mut command);
        Some(Job { title: binary.title(), command })
    });
    let mut jobs: Vec<_> = jobs.collect();
    if !options.quick {
        jobs.splice(0..0, docs(&options.filter, &scratch)?);
    }
    lanes::run(jobs, LANES, |ended| _ = tally.ended(ended));
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
fn docs(filter: &[String], scratch: &Scratch) -> Result<Vec<Job>, Box<dyn std::error::Error>> {
    let mut docs = cargo(&RUN)?;
    docs.args(heavy::tested()?).arg("--doc");
    let [test, no_fail_fast, locked] = RUN;
    let outside = outside(STORE, test, &[no_fail_fast, locked])?;
    let jobs = [("doc tests".to_owned(), docs), (STORE.to_owned(), outside)];
    Ok(Vec::from(jobs.map(|(title, mut command)| {
        scratch.tell(command.arg("--").args(filter));
        Job { title, command }
    })))
}

/// Counts the targets that could not be built as failures.
fn counted(built: Built, tally: &mut Tally) -> Built {
    for target in built.failed() {
        tally.fail(&format!("{target} could not be built"));
    }
    built
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_in_any_order_and_a_filter_after_two_dashes() {
        let options = Options::parse(&["--list", "--quick", "--", "b12", "--exact"]);
        let filter = vec!["b12".to_owned(), "--exact".to_owned()];
        assert_eq!(options, Ok(Options { quick: true, list: true, filter }));
        assert_eq!(Options::parse(&[]), Ok(Options::default()));
    }
}
