//! The division of the tests into parts: the tests of `test`, those of `test extras`, and those that need no server. A
//! test belongs to `extras` if its path has a module of that name, and for no other reason.
use std::collections::BTreeMap;
use std::error::Error;
use std::process::Command;

use super::build::Binary;
use crate::tools::capture;

/// The module whose tests belong to `test extras`.
const EXTRAS: &str = "extras::";

/// A part of the tests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    /// `test`: all tests except the extras.
    Main,
    /// `test --quick`: the tests of `test` that need no server.
    Quick,
    /// `test extras`.
    Extras,
}

/// The packages whose tests need no server, with words in the paths of other tests.
const SERVERLESS: [(&str, &[&str]); 20] = [
    ("idempotent-actix-web", &[]),
    ("idempotent-alert", &[]),
    (
        "idempotent-cli",
        &["servers::", "rabbitmq", "redis", "kafka", "sqs", "delay", "database", "statements", "another_program"],
    ),
    ("idempotent-console", &[]),
    ("idempotent-core", &[]),
    ("idempotent-fuzz-bodies", &[]),
    ("idempotent-harness", &["servers::"]),
    ("idempotent-macros", &[]),
    ("idempotent-metrics", &["prometheus::", "redis::"]),
    ("idempotent-model", &[]),
    ("idempotent-mq", &[]),
    ("idempotent-operate", &[]),
    ("idempotent-otel", &["redis"]),
    ("idempotent-simulator", &[]),
    ("idempotent-sqlx", &["postgres", "mysql"]),
    ("idempotent-testkit", &[]),
    ("idempotent-tests", &["postgres", "mariadb", "mysql_opens", "redis_opens", "tokens::stores"]),
    ("idempotent-tonic", &[]),
    ("idempotent-tower", &["sockets::", "redis"]),
    ("xtask", &[]),
];

/// A package of [`SERVERLESS`], and its binary whose tests all need servers.
const OF_SERVERS: (&str, &str) = ("idempotent-tests", "examples");

/// The variables that name server programs. `--quick` sets them to [`NONE`], so that a test that starts a server fails.
const PROGRAMS: [&str; 5] = [
    "IDEMPOTENT_REDIS_SERVER",
    "IDEMPOTENT_POSTGRES_BIN",
    "IDEMPOTENT_MARIADB_BIN",
    "IDEMPOTENT_RABBITMQ_SBIN",
    "IDEMPOTENT_PROMETHEUS_BIN",
];
const NONE: &str = "/no/server/in/test/--quick";

impl Part {
    /// Returns the command that runs this part of a binary's tests, or `None` if none of them is in this part.
    pub(super) fn command(self, binary: &Binary, libraries: &str) -> Option<Command> {
        let mut command = binary.command(libraries);
        match self {
            Self::Main => drop(command.args(["--skip", EXTRAS])),
            Self::Extras => drop(command.arg(EXTRAS)),
            Self::Quick => {
                let (_, without) = SERVERLESS.iter().find(|(package, _)| *package == binary.package)?;
                if OF_SERVERS == (&binary.package, &binary.target) {
                    return None;
                }
                command.args(["--skip", EXTRAS]).args(without.iter().flat_map(|word| ["--skip", word]));
                command.envs(PROGRAMS.map(|name| (name, NONE)));
            }
        }
        Some(command)
    }
}

/// Returns the tests of each binary that `test` leaves to `test extras`, counted by module.
pub(super) fn left_out(binaries: &[Binary], libraries: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut left = Vec::new();
    for binary in binaries {
        let modules = extras_of(binary, libraries)?;
        left.extend(modules.into_iter().map(|(module, tests)| format!("{}: {module} ({tests})", binary.title())));
    }
    Ok(left)
}

/// Returns the number of tests in each module that `test` leaves to `test extras`.
pub(super) fn extras_of(binary: &Binary, libraries: &str) -> Result<BTreeMap<String, usize>, Box<dyn Error>> {
    let mut list = binary.command(libraries);
    let (status, names) = capture(list.args([EXTRAS, "--list", "--format", "terse"]))?;
    if !status.success() {
        return Err(format!("{} --list: {names}", binary.title()).into());
    }
    let mut modules = BTreeMap::new();
    for name in names.lines().filter_map(|line| line.strip_suffix(": test")) {
        let module = name.rsplit_once("::").map_or(name, |(module, _)| module);
        *modules.entry(module.to_owned()).or_default() += 1;
    }
    Ok(modules)
}
