//! What needs more than the main run: a browser, many messages, other servers, a minute of noise, minutes of building.
use std::error::Error;
use std::time::Instant;

use super::binary::{Binary, libraries};
use super::build::Built;
use super::lanes::{self, Job, lanes};
use super::tally::Tally;
use super::{build, counted};
use crate::heavy;
use crate::setup;
use crate::setup::flavours::{self, FLAVOURS};
use crate::setup::{brokers, browser};
use crate::tools::{Done, cargo, stream};

/// The sets of tests that take longer than CI's main run should, or need more.
pub(crate) fn extras() -> Done {
    if !setup::all()? || !flavours::all()? || !browser::all()? || !brokers::all()? {
        println!("xtask test extras: what to run on is not there");
        return Ok(false);
    }
    let mut tally = Tally::default();
    let built = counted(build::all()?, &mut tally);
    let mut jobs = ALONE.iter().map(|only| only.of(&built)).collect::<Result<Vec<_>, _>>()?;
    jobs.extend(on_flavours(&built)?);
    run(jobs, &mut tally);
    rocketmq(&mut tally)?;
    tally.tell();
    println!("xtask test extras: {} passed, {} failed", tally.passed(), tally.failed());
    Ok(tally.failed() == 0 && tally.passed() > 0)
}

/// That a binary has no such test is a failure, too.
fn run(jobs: Vec<Job>, tally: &mut Tally) {
    lanes::run(jobs, lanes(), |ended| {
        let before = tally.passed() + tally.failed();
        let only = ALONE.iter().chain(&ON_ROCKETMQ).any(|only| only.what == ended.title);
        tally.ended(ended);
        if only && before == tally.passed() + tally.failed() {
            println!("error: there is no such test");
            tally.end(false);
        }
    });
}

/// Tests that `test` passes over, or runs a shorter form of.
struct Only {
    what: &'static str,
    package: &'static str,
    target: &'static str,
    arguments: &'static [&'static str],
}

const ALONE: [Only; 3] = [
    Only {
        what: "100,000 messages through four processes of consume",
        package: "idempotent-rs",
        target: "consume",
        arguments: &["fleet::", "--ignored", "--nocapture"],
    },
    Only {
        what: "a minute of hostile headers",
        package: "idempotent-fuzz-bodies",
        target: "bounded",
        arguments: &["a_header", "--nocapture"],
    },
    Only {
        what: "the page of rest_axum in Chromium",
        package: "idempotent-rs",
        target: "browser",
        arguments: &["--ignored"],
    },
];

impl Only {
    fn of(&self, built: &Built) -> Result<Job, Box<dyn Error>> {
        let is_it = |binary: &&Binary| binary.package == self.package && binary.target == self.target;
        let binary = built.binaries().iter().find(is_it).ok_or_else(|| format!("{} was not built", self.target))?;
        let mut command = binary.command(&libraries()?);
        command.args(self.arguments).env("FUZZ_SECONDS", "60");
        Ok(Job { title: self.what.to_owned(), command })
    }
}

/// What is run on each flavour of Redis. Of the test kit: that the servers are of the flavour that was asked for, among
/// others.
const ON_REDIS: [(&str, Option<&str>); 3] =
    [("idempotent-testkit", Some("servers")), ("idempotent-redis", None), ("idempotent-redis-streams", None)];

fn on_flavours(built: &Built) -> Result<Vec<Job>, Box<dyn Error>> {
    let libraries = libraries()?;
    let mut jobs = Vec::new();
    for (package, target) in ON_REDIS {
        let is_it = |binary: &&Binary| {
            let wanted = target.is_none_or(|target| binary.kind == "test" && binary.target == target);
            // Mutants judge the tests, not the server.
            binary.package == package && wanted && binary.target != "mutants"
        };
        let binaries: Vec<_> = built.binaries().iter().filter(is_it).collect();
        if binaries.is_empty() {
            return Err(format!("nothing of {package} was built").into());
        }
        for (binary, flavour) in binaries.into_iter().flat_map(|binary| FLAVOURS.iter().map(move |of| (binary, of))) {
            let mut command = binary.command(&libraries);
            // Ways of ours that are no other on another server.
            command.args(["--skip", "without_a_cache::", "--skip", "with_the_scripts_of_redis_6::"]);
            command.env("IDEMPOTENT_REDIS_SERVER", flavour.path()?).env("IDEMPOTENT_REDIS_VERSION", flavour.version);
            jobs.push(Job { title: format!("{} on {}", binary.title(), flavour.version), command });
        }
    }
    Ok(jobs)
}

const ON_ROCKETMQ: [Only; 2] = [
    Only { what: "the examples on RocketMQ", package: "idempotent-rs", target: "rocketmq", arguments: &[] },
    Only { what: "chaos on RocketMQ", package: "idempotent-chaos", target: "smoke", arguments: &["rocketmq"] },
];

/// All that `test` and `check` leave out since its client takes minutes to build: built once, for all its tests.
fn rocketmq(tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    let features = "idempotent-rs/rocketmq,idempotent-chaos/rocketmq";
    let with_it = ["--package", heavy::PACKAGE, "--package", "idempotent-rs", "--package", "idempotent-chaos"];
    let with_it = [&with_it[..], &["--features", features]].concat();
    let mut clippy = cargo(&["clippy", "--locked", "--all-targets"])?;
    clippy.args(&with_it).args(["--", "-D", "warnings"]);
    // Of the facade with this feature alone, so that both need the client's crates in one form.
    let alone = ["--locked", "--package", heavy::PACKAGE, "--package", "idempotent-rs", "--no-default-features"];
    let alone = [&alone[..], &["--features", "idempotent-rs/rocketmq"]].concat();
    let mut check = cargo(&["check"])?;
    check.args(&alone);
    let mut docs = cargo(&["doc", "--no-deps"])?;
    docs.args(&alone).env("RUSTDOCFLAGS", "-D warnings");
    for (what, mut command) in [("lints", clippy), ("facade with it alone", check), ("docs", docs)] {
        let start = Instant::now();
        let done = stream(&mut command, |_| {})?.success();
        tally.end(done);
        println!("xtask test extras: {}: {what}: {} s", heavy::PACKAGE, start.elapsed().as_secs());
    }
    let start = Instant::now();
    let built = counted(build::of(&with_it)?, tally);
    println!("xtask test extras: {}: built in {} s", heavy::PACKAGE, start.elapsed().as_secs());
    let libraries = libraries()?;
    let adapter = built.binaries().iter().filter(|binary| binary.package == heavy::PACKAGE);
    // The longest is among these: it begins first.
    let adapter = adapter.map(|binary| Job { title: binary.title(), command: binary.command(&libraries) });
    let mut jobs = adapter.collect::<Vec<_>>();
    jobs.extend(ON_ROCKETMQ.iter().map(|only| only.of(&built)).collect::<Result<Vec<_>, _>>()?);
    for job in &mut jobs {
        job.command.env("IDEMPOTENT_ROCKETMQ_BIN", brokers::bin()?);
    }
    run(jobs, tally);
    let mut docs = cargo(&["test", "--no-fail-fast", "--locked", "--doc"])?;
    let status = stream(docs.args(&with_it), |line| tally.line(line))?;
    tally.end(status.success());
    Ok(())
}
