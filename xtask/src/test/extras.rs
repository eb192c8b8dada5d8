//! The tests that `test` leaves out: tests in modules named `extras`, a minute of fuzzing, and other flavours of Redis; and, by
//! commands of their own, the adapters of Kafka, RocketMQ and SQS, and the store on DynamoDB.
use std::error::Error;
use std::process::Command;
use std::time::Instant;

use super::binary::{Binary, libraries};
use super::build::Built;
use super::lanes::{self, Job};
use super::part::{Part, having_extras};
use super::scratch::Scratch;
use super::tally::Tally;
use super::{build, counted};
use crate::heavy::Heavy;
use crate::setup::flavours::{self, FLAVOURS};
use crate::setup::{brokers, browser};
use crate::tools::{Done, cargo, stream};
use crate::{budget, heavy, setup};

/// One less than in `test`: chaos and the groups of servers use both cores by themselves.
const LANES: usize = 3;

/// Runs all of them, even after a failure.
pub(crate) fn extras() -> Done {
    if !setup::all()? || !flavours::all()? || !browser::all()? {
        println!("xtask test extras: what to run on is not there");
        return Ok(false);
    }
    let measured = budget::Measured::begin();
    let mut tally = Tally::default();
    let built = counted(build::all(false)?, &mut tally);
    let (libraries, scratch) = (libraries()?, Scratch::new());
    let mut jobs = vec![FUZZED.of(&built)?];
    for binary in having_extras(built.binaries(), &libraries)? {
        let command = Part::Extras.command(binary, &libraries);
        jobs.extend(command.map(|command| Job { title: binary.title(), command }));
    }
    for job in &mut jobs {
        job.command.env("IDEMPOTENT_AXE", browser::axe_script()?);
    }
    jobs.extend(on_flavours(&built, &libraries)?);
    run(jobs, &scratch, &mut tally);
    tally.tell(false);
    measured.end("extras")?;
    println!("xtask test extras: {} passed, {} failed", tally.passed(), tally.failed());
    Ok(tally.failed() == 0 && tally.passed() > 0)
}

/// Runs all tests of DynamoDB, whose client takes minutes to build.
pub(crate) fn dynamodb() -> Done {
    DYNAMODB.run_on(setup::moto)
}

/// Runs all tests of Kafka, whose client takes minutes to build.
pub(crate) fn kafka() -> Done {
    KAFKA.run_on(setup::kafka)
}

/// Runs all tests of RocketMQ, which take minutes to build.
pub(crate) fn rocketmq() -> Done {
    if !setup::all()? || !brokers::all()? {
        println!("xtask test rocketmq: what to run on is not there");
        return Ok(false);
    }
    let measured = budget::Measured::begin();
    let mut tally = Tally::default();
    let bin = brokers::bin()?;
    ROCKETMQ.run(&Scratch::new(), &mut tally, |command| {
        command.env("IDEMPOTENT_ROCKETMQ_BIN", &bin);
    })?;
    tally.tell(false);
    measured.end("rocketmq")?;
    println!("xtask test rocketmq: {} passed, {} failed", tally.passed(), tally.failed());
    Ok(tally.failed() == 0 && tally.passed() > 0)
}

/// Runs all tests of SQS, whose client takes minutes to build.
pub(crate) fn sqs() -> Done {
    SQS.run_on(setup::moto)
}

/// Runs the jobs. A job without a test is a failure, too: its filter no longer matches.
fn run(mut jobs: Vec<Job>, scratch: &Scratch, tally: &mut Tally) {
    jobs.iter_mut().for_each(|job| scratch.tell(&mut job.command));
    lanes::run(jobs, LANES, |ended| {
        let before = tally.passed() + tally.failed();
        let title = ended.title.clone();
        tally.ended(ended);
        if before == tally.passed() + tally.failed() {
            println!("error: {title}: there is no such test");
            tally.end(false);
        }
    });
}

/// Selected tests of one binary.
struct Only {
    what: &'static str,
    package: &'static str,
    target: &'static str,
    arguments: &'static [&'static str],
}

const FUZZED: Only = Only {
    what: "a minute of hostile headers",
    package: "idempotent-fuzz-bodies",
    target: "bounded",
    arguments: &["a_header", "--nocapture"],
};

impl Only {
    fn of(&self, built: &Built) -> Result<Job, Box<dyn Error>> {
        let is_it = |binary: &&Binary| binary.package == self.package && binary.target == self.target;
        let binary = built.binaries().iter().find(is_it).ok_or_else(|| format!("{} was not built", self.target))?;
        let mut command = binary.command(&libraries()?);
        command.args(self.arguments).env("FUZZ_SECONDS", "60");
        Ok(Job { title: self.what.to_owned(), command })
    }
}

/// The tests that run on each flavour of Redis: the laws of a store, and those about the behaviour of servers. `cargo
/// xtask nightly` runs all tests.
const ON_REDIS: [(&str, &str); 3] = [
    ("idempotent-harness", "servers::"),
    ("idempotent-redis", "conformance::by_the_servers_clock::"),
    ("idempotent-redis", "native_comparison::"),
];

fn on_flavours(built: &Built, libraries: &str) -> Result<Vec<Job>, Box<dyn Error>> {
    let mut jobs = Vec::new();
    for (package, filter) in ON_REDIS {
        let is_it = |binary: &&Binary| binary.package == package && binary.target == "suite";
        let binary = built.binaries().iter().find(is_it).ok_or_else(|| format!("nothing of {package} was built"))?;
        for flavour in &FLAVOURS {
            let mut command = binary.command(libraries);
            command.arg(filter).env("IDEMPOTENT_REDIS_SERVER", flavour.path()?);
            command.env("IDEMPOTENT_REDIS_VERSION", flavour.version);
            jobs.push(Job { title: format!("{} on {}", binary.title(), flavour.version), command });
        }
    }
    Ok(jobs)
}

const ON_ROCKETMQ: [Only; 4] = [
    Only {
        what: "the examples on RocketMQ",
        package: "idempotent-tests",
        target: "examples",
        arguments: &["rocketmq::"],
    },
    Only {
        what: "the command line on RocketMQ",
        package: "idempotent-cli",
        target: "suite",
        arguments: &["dead::rocketmq::", "dead::arguments::"],
    },
    Only { what: "the URL of RocketMQ", package: "idempotent-cli", target: "idempotent", arguments: &["queue::"] },
    Only { what: "chaos on RocketMQ", package: "idempotent-chaos", target: "smoke", arguments: &["rocketmq"] },
];

const ON_KAFKA: [Only; 3] = [
    Only { what: "the examples on Kafka", package: "idempotent-tests", target: "examples", arguments: &["kafka::"] },
    Only {
        what: "the command line on Kafka",
        package: "idempotent-cli",
        target: "suite",
        arguments: &["dead::kafka::"],
    },
    Only { what: "chaos on Kafka", package: "idempotent-chaos", target: "smoke", arguments: &["kafka"] },
];

const ON_SQS: [Only; 3] = [
    Only { what: "the examples on SQS", package: "idempotent-tests", target: "examples", arguments: &["sqs::"] },
    Only { what: "the command line on SQS", package: "idempotent-cli", target: "suite", arguments: &["dead::sqs::"] },
    Only { what: "chaos on SQS", package: "idempotent-chaos", target: "smoke", arguments: &["sqs"] },
];

const ON_DYNAMODB: [Only; 1] = [Only {
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
    only: &'static [Only],
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
};

/// The packages that have the features of Kafka and SQS.
const PROGRAMS: [&str; 5] =
    ["idempotent-chaos", "idempotent-cli", "idempotent-consume", "idempotent-examples", "idempotent-tests"];

const KAFKA: Suite = Suite {
    heavy: heavy::KAFKA,
    features: &["idempotent-kafka/tls", "idempotent-kafka/zstd"],
    programs: &PROGRAMS,
    only: &ON_KAFKA,
};

const SQS: Suite = Suite { heavy: heavy::SQS, features: &["idempotent-sqs/tls"], programs: &PROGRAMS, only: &ON_SQS };

const DYNAMODB: Suite = Suite {
    heavy: heavy::DYNAMODB,
    features: &["idempotent-dynamodb/tls"],
    programs: &["idempotent-examples", "idempotent-tests"],
    only: &ON_DYNAMODB,
};

impl Suite {
    /// Installs the server, runs the suite and prints the result.
    fn run_on(&self, server: fn() -> Done) -> Done {
        let name = self.heavy.feature;
        if !setup::all()? || !server()? {
            println!("xtask test {name}: what to run on is not there");
            return Ok(false);
        }
        let measured = budget::Measured::begin();
        let mut tally = Tally::default();
        self.run(&Scratch::new(), &mut tally, |_| {})?;
        tally.tell(false);
        measured.end(name)?;
        println!("xtask test {name}: {} passed, {} failed", tally.passed(), tally.failed());
        Ok(tally.failed() == 0 && tally.passed() > 0)
    }

    /// Runs the suite. The client is built once for all tests. `set` changes the commands of the tests.
    fn run(&self, scratch: &Scratch, tally: &mut Tally, set: impl Fn(&mut Command)) -> Result<(), Box<dyn Error>> {
        let Heavy { package, feature } = self.heavy;
        let of_programs = self.programs.iter().map(|program| format!("{program}/{feature}"));
        let features: Vec<_> = of_programs.chain(self.features.iter().map(|&feature| feature.to_owned())).collect();
        let features = features.join(",");
        let packages = self.programs.iter().chain([&package]);
        let with_it: Vec<_> = packages.flat_map(|package| ["--package", package]).collect();
        let with_it = [&with_it[..], &["--features", &features]].concat();
        let mut clippy = cargo(&["clippy", "--locked", "--all-targets"])?;
        clippy.args(&with_it).args(["--", "-D", "warnings"]);
        // The facade has only this feature, so that both builds need the client's crates in one form.
        let alone = ["--locked", "--package", package, "--package", "idempotent-rs", "--no-default-features"];
        let only_it = format!("idempotent-rs/{feature}");
        let alone = [&alone[..], &["--features", &only_it]].concat();
        let mut check = cargo(&["check"])?;
        check.args(&alone);
        let mut docs = cargo(&["doc", "--no-deps"])?;
        docs.args(&alone).env("RUSTDOCFLAGS", "-D warnings");
        for (what, mut command) in [("lints", clippy), ("facade with it alone", check), ("docs", docs)] {
            let start = Instant::now();
            let done = stream(&mut command, |_| {})?.success();
            tally.end(done);
            println!("xtask test {feature}: {package}: {what}: {} s", start.elapsed().as_secs());
        }
        let start = Instant::now();
        let built = counted(build::of(&with_it)?, tally);
        println!("xtask test {feature}: {package}: built in {} s", start.elapsed().as_secs());
        let libraries = libraries()?;
        let adapter = built.binaries().iter().filter(|binary| binary.package == package);
        // The longest job is one of these, so they start first.
        let adapter = adapter.map(|binary| Job { title: binary.title(), command: binary.command(&libraries) });
        let mut jobs = adapter.collect::<Vec<_>>();
        jobs.extend(self.only.iter().map(|only| only.of(&built)).collect::<Result<Vec<_>, _>>()?);
        jobs.iter_mut().for_each(|job| set(&mut job.command));
        run(jobs, scratch, tally);
        let mut docs = cargo(&["test", "--no-fail-fast", "--locked", "--doc"])?;
        let status = stream(docs.args(&with_it), |line| tally.line(line))?;
        tally.end(status.success());
        Ok(())
    }
}
