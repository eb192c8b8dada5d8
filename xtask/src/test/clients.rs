//! The tests of adapters and stores whose clients take minutes to build. `test clients` covers Kafka, SQS and DynamoDB in one
//! build. Each of them, and RocketMQ, has a command of its own, which also checks the facade with this feature alone.
use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::process::Command;
use std::time::Instant;

use super::binary::{THREADS, libraries};
use super::lanes::{Job, LANES};
use super::scratch::Scratch;
use super::selected::{SelectedTests, run};
use super::tally::Tally;
use super::{build, counted};
use crate::heavy::Heavy;
use crate::setup::brokers;
use crate::tools::{Done, cargo, stream};
use crate::{budget, heavy, setup};

/// Runs the tests of Kafka, SQS and DynamoDB.
pub(crate) fn clients() -> Done {
    run_suites("clients", &[&KAFKA, &SQS, &DYNAMODB])
}

/// Runs all tests of DynamoDB.
pub(crate) fn dynamodb() -> Done {
    run_suites("dynamodb", &[&DYNAMODB])
}

/// Runs all tests of Kafka.
pub(crate) fn kafka() -> Done {
    run_suites("kafka", &[&KAFKA])
}

/// Runs all tests of RocketMQ.
pub(crate) fn rocketmq() -> Done {
    run_suites("rocketmq", &[&ROCKETMQ])
}

/// Runs all tests of SQS.
pub(crate) fn sqs() -> Done {
    run_suites("sqs", &[&SQS])
}

const ON_ROCKETMQ: [SelectedTests; 4] = [
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

const ON_KAFKA: [SelectedTests; 3] = [
    SelectedTests { what: "chaos on Kafka", package: "idempotent-chaos", target: "smoke", arguments: &["kafka"] },
    SelectedTests {
        what: "the examples on Kafka",
        package: "idempotent-tests",
        target: "examples",
        arguments: &["kafka::"],
    },
    SelectedTests {
        what: "the command line on Kafka",
        package: "idempotent-cli",
        target: "suite",
        arguments: &["dead::kafka::"],
    },
];

const ON_SQS: [SelectedTests; 3] = [
    SelectedTests { what: "chaos on SQS", package: "idempotent-chaos", target: "smoke", arguments: &["sqs"] },
    SelectedTests {
        what: "the examples on SQS",
        package: "idempotent-tests",
        target: "examples",
        arguments: &["sqs::"],
    },
    SelectedTests {
        what: "the command line on SQS",
        package: "idempotent-cli",
        target: "suite",
        arguments: &["dead::sqs::"],
    },
];

const ON_DYNAMODB: [SelectedTests; 1] = [SelectedTests {
    what: "the example on DynamoDB",
    package: "idempotent-tests",
    target: "examples",
    arguments: &["dynamodb::"],
}];

/// An adapter or a store, and everything that `test` and `check` leave out because its client takes minutes to build.
struct Suite {
    heavy: Heavy,
    /// The other features of the adapter.
    features: &'static [&'static str],
    /// The packages that have the feature of the client.
    programs: &'static [&'static str],
    only: &'static [SelectedTests],
    /// Installs the server.
    server: fn() -> Done,
}

const ROCKETMQ: Suite = Suite {
    heavy: heavy::ROCKETMQ,
    features: &[],
    programs: &[
        "idempotent-chaos",
        "idempotent-cli",
        "idempotent-consume",
        "idempotent-examples",
        "idempotent-payment-callback",
        "idempotent-tests",
    ],
    only: &ON_ROCKETMQ,
    server: brokers::all,
};

/// The packages that have the features of Kafka and SQS.
const PROGRAMS: [&str; 5] =
    ["idempotent-chaos", "idempotent-cli", "idempotent-consume", "idempotent-examples", "idempotent-tests"];

const KAFKA: Suite = Suite {
    heavy: heavy::KAFKA,
    features: &["idempotent-kafka/tls", "idempotent-kafka/zstd"],
    programs: &PROGRAMS,
    only: &ON_KAFKA,
    server: setup::kafka,
};

const SQS: Suite = Suite {
    heavy: heavy::SQS,
    features: &["idempotent-sqs/tls"],
    programs: &PROGRAMS,
    only: &ON_SQS,
    server: setup::moto,
};

const DYNAMODB: Suite = Suite {
    heavy: heavy::DYNAMODB,
    features: &["idempotent-dynamodb/tls"],
    programs: &["idempotent-examples", "idempotent-tests"],
    only: &ON_DYNAMODB,
    server: setup::moto,
};

/// Installs the servers of the suites, runs the suites, and prints the result.
fn run_suites(name: &str, suites: &[&Suite]) -> Done {
    let mut is_installed = setup::all()?;
    for suite in suites {
        is_installed &= (suite.server)()?;
    }
    if !is_installed {
        println!("xtask test {name}: what to run on is not there");
        return Ok(false);
    }
    let measured = budget::Measured::begin();
    let mut tally = Tally::default();
    let arguments = with_clients(suites);
    let mut lints = cargo(&["clippy", "--locked", "--all-targets"])?;
    lints.args(&arguments).args(["--", "-D", "warnings"]);
    timed(&format!("{name}: lints"), &mut lints, &mut tally)?;
    if let [suite] = suites {
        suite.check_alone(name, &mut tally)?;
    }
    let mut docs = cargo(&["doc", "--no-deps", "--locked"])?;
    docs.args(adapters(suites)).env("RUSTDOCFLAGS", "-D warnings");
    timed(&format!("{name}: docs"), &mut docs, &mut tally)?;
    run_tests(name, suites, &arguments, &mut tally)?;
    tally.tell(false);
    measured.end(name)?;
    println!("xtask test {name}: {} passed, {} failed", tally.passed(), tally.failed());
    Ok(tally.failed() == 0 && tally.passed() > 0)
}

/// Returns cargo's arguments for the packages of the suites and for the programs, with the clients.
fn with_clients(suites: &[&Suite]) -> Vec<String> {
    let programs =
        |suite: &&&Suite| suite.programs.iter().copied().chain([suite.heavy.package]).chain(suite.heavy.bench);
    let packages: BTreeSet<_> = suites.iter().flat_map(|suite| programs(&suite)).collect();
    let features = suites.iter().flat_map(|suite| {
        let of_programs = suite.programs.iter().map(|program| format!("{program}/{}", suite.heavy.feature));
        of_programs.chain(suite.features.iter().map(|&feature| feature.to_owned()))
    });
    let features = features.collect::<Vec<_>>().join(",");
    let packages = packages.into_iter().flat_map(|package| ["--package".to_owned(), package.to_owned()]);
    packages.chain(["--features".to_owned(), features]).collect()
}

/// Returns cargo's arguments for the adapters with all features, which the tests have, too.
fn adapters(suites: &[&Suite]) -> Vec<String> {
    let packages = suites.iter().flat_map(|suite| ["--package", suite.heavy.package]);
    let features = suites.iter().flat_map(|suite| suite.features).copied().collect::<Vec<_>>().join(",");
    packages.map(str::to_owned).chain(["--features".to_owned(), features]).collect()
}

/// Runs a command, and counts its result.
fn timed(what: &str, command: &mut Command, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let done = stream(command, |_| {})?.success();
    tally.end(done);
    println!("xtask test {what}: {} s", start.elapsed().as_secs());
    Ok(())
}

/// Builds and runs the tests.
fn run_tests(name: &str, suites: &[&Suite], arguments: &[String], tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    let (start, scratch) = (Instant::now(), Scratch::new());
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let built = counted(build::of(&arguments)?, tally);
    println!("xtask test {name}: built in {} s", start.elapsed().as_secs());
    let libraries = libraries()?;
    let is_adapter = |package: &str| suites.iter().any(|suite| suite.heavy.package == package);
    let adapters = built.binaries().iter().filter(|binary| is_adapter(&binary.package));
    // The longest job is one of these, so they start first.
    let adapters = adapters.map(|binary| Job { title: binary.title(), command: binary.command(&libraries) });
    let mut jobs = adapters.collect::<Vec<_>>();
    for only in suites.iter().flat_map(|suite| suite.only) {
        jobs.push(only.of(&built)?);
    }
    if suites.iter().any(|suite| suite.heavy.feature == ROCKETMQ.heavy.feature) {
        let bin = brokers::bin()?;
        for job in &mut jobs {
            job.command.env("IDEMPOTENT_ROCKETMQ_BIN", &bin);
        }
    }
    for job in &mut jobs {
        // An emulator in Python answers the laws slowly on a loaded machine.
        job.command.env("IDEMPOTENT_KIT_LIMIT", "1200");
        // Most tests wait for a group of Kafka or for a visibility timeout, and use hardly any processor time.
        job.command.env(THREADS, env::var_os(THREADS).unwrap_or_else(|| "8".into()));
    }
    run(jobs, LANES, &scratch, tally);
    let mut docs = cargo(&["test", "--no-fail-fast", "--locked", "--doc"])?;
    let status = stream(docs.args(&arguments), |line| tally.line(line))?;
    tally.end(status.success());
    Ok(())
}

impl Suite {
    /// Checks the facade with only this feature.
    fn check_alone(&self, name: &str, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
        let feature = format!("idempotent-rs/{}", self.heavy.feature);
        let alone = ["--package", "idempotent-rs", "--no-default-features", "--features", &feature];
        let mut check = cargo(&["check", "--locked"])?;
        timed(&format!("{name}: facade with this feature alone"), check.args(alone), tally)
    }
}
