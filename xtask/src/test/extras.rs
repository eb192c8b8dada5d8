//! The tests that `test` leaves out: tests in modules named `extras`, a minute of fuzzing, servers that are not the system's,
//! and the PostgreSQL store on hash partitions.
use std::error::Error;

use super::build::{self, Built, libraries};
use super::jobs::{Job, LANES, Scratch, SelectedTests, Tally, run};
use super::part::{Part, extras_of};
use crate::setup::flavours::{self, Flavour, MARIADB, MYSQL, PGBOUNCER, POSTGRES, RABBITMQ, REDICT, REDIS, VALKEY};
use crate::setup::packaged;
use crate::tools::Done;
use crate::{budget, setup};

/// Runs all of them, even after a failure.
pub(crate) fn extras() -> Done {
    if !setup::all()? || !flavours::all()? || !setup::browser()? {
        println!("xtask test extras: what to run on is not there");
        return Ok(false);
    }
    let measured = budget::Measured::begin();
    let mut tally = Tally::default();
    let built = build::all()?.counted(&mut tally);
    let (libraries, scratch) = (libraries()?, Scratch::new());
    let mut fuzzed = FUZZED.of(&built)?;
    fuzzed.command.env("FUZZ_SECONDS", "60");
    let mut jobs = vec![fuzzed];
    for binary in built.binaries() {
        let command = Part::Extras.command(binary, &libraries);
        if !extras_of(binary, &libraries)?.is_empty() {
            jobs.extend(command.map(|command| Job { title: binary.title(), command, is_selection: true }));
        }
    }
    let axe = packaged::axe()?;
    for job in &mut jobs {
        job.command.env("IDEMPOTENT_AXE", &axe);
    }
    jobs.extend(on_flavours(&built, &libraries)?);
    let mut on_partitions = ON_PARTITIONS.of(&built)?;
    on_partitions.command.env("IDEMPOTENT_POSTGRES_PARTITIONS", "16");
    jobs.push(on_partitions);
    // One less than in `test`: chaos and the groups of servers use both cores by themselves.
    run(jobs, LANES - 1, &scratch, &mut tally);
    tally.tell();
    measured.end("extras")?;
    Ok(tally.is_good("test extras"))
}

const FUZZED: SelectedTests = SelectedTests {
    what: "a minute of hostile headers",
    package: "idempotent-fuzz-bodies",
    target: "bounded",
    arguments: &["a_header", "--nocapture"],
};

/// All tests of the PostgreSQL store and of its inbox. The tables of the outbox and of the delay table have no partitions.
const ON_PARTITIONS: SelectedTests = SelectedTests {
    what: "the PostgreSQL store on 16 hash partitions",
    package: "idempotent-sqlx",
    target: "suite",
    arguments: &["postgres::", "--skip", "outbox::", "--skip", "delay::"],
};

/// The tests that run on servers that are not the system's: those about the behaviour of servers. `cargo xtask nightly` runs
/// all suites.
const ON_FLAVOURS: [(&str, &str, &[&Flavour]); 8] = [
    ("idempotent-harness", "servers::", &[&REDIS, &VALKEY]),
    ("idempotent-redis", "conformance::by_the_servers_clock::", &[&REDICT, &REDIS, &VALKEY]),
    ("idempotent-redis", "native_comparison::", &[&REDIS, &VALKEY]),
    ("idempotent-sqlx", "mysql::dialect::", &[&MARIADB, &MYSQL]),
    ("idempotent-sqlx", "postgres::dialect::", &[&POSTGRES]),
    ("idempotent-sqlx", "pooler::", &[&PGBOUNCER]),
    ("idempotent-rabbitmq", "broker::subscriptions::", &[&RABBITMQ]),
    ("idempotent-rabbitmq", "broker::delayed_retry::", &[&RABBITMQ]),
];

fn on_flavours(built: &Built, libraries: &str) -> Result<Vec<Job>, Box<dyn Error>> {
    let mut jobs = Vec::new();
    for (package, filter, flavours) in ON_FLAVOURS {
        let binary = built.binary(package, "suite")?;
        for flavour in flavours {
            let mut command = binary.command(libraries);
            command.arg(filter).envs([flavour.environment()?]);
            let title = format!("{} on {} {}", binary.title(), flavour.name, flavour.version()?);
            jobs.push(Job { title, command, is_selection: true });
        }
    }
    Ok(jobs)
}
