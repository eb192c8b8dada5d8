//! The division of the tests into parts: the tests of `test`, those of `test extras`, and those that need no server. A
//! test belongs to `extras` if its path has a module of that name, and for no other reason.
use std::collections::BTreeMap;
use std::error::Error;
use std::process::Command;

use super::binary::Binary;
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

/// The tests of a package that need no server: its unit tests and test binaries, except one binary and paths that
/// contain certain words.
struct Serverless {
    package: &'static str,
    not: &'static str,
    without: &'static [&'static str],
}

const SERVERLESS: [Serverless; 20] = [
    Serverless { package: "idempotent-actix-web", not: "", without: &[] },
    Serverless { package: "idempotent-alert", not: "", without: &[] },
    Serverless {
        package: "idempotent-cli",
        not: "",
        without: &[
            "servers::",
            "rabbitmq",
            "redis",
            "kafka",
            "sqs",
            "delay",
            "database",
            "statements",
            "another_program",
        ],
    },
    Serverless { package: "idempotent-console", not: "", without: &[] },
    Serverless { package: "idempotent-core", not: "", without: &[] },
    Serverless { package: "idempotent-fuzz-bodies", not: "", without: &[] },
    Serverless { package: "idempotent-harness", not: "", without: &["servers::"] },
    Serverless { package: "idempotent-macros", not: "", without: &[] },
    Serverless { package: "idempotent-metrics", not: "", without: &["prometheus::", "redis::"] },
    Serverless { package: "idempotent-model", not: "", without: &[] },
    Serverless { package: "idempotent-mq", not: "", without: &[] },
    Serverless { package: "idempotent-operate", not: "", without: &[] },
    Serverless { package: "idempotent-otel", not: "", without: &["redis"] },
    Serverless { package: "idempotent-simulator", not: "", without: &[] },
    Serverless { package: "idempotent-sqlx", not: "", without: &["postgres", "mysql"] },
    Serverless { package: "idempotent-testkit", not: "", without: &[] },
    Serverless {
        package: "idempotent-tests",
        not: "examples",
        without: &["postgres", "mariadb", "mysql_opens", "redis_opens", "tokens::stores"],
    },
    Serverless { package: "idempotent-tonic", not: "", without: &[] },
    Serverless { package: "idempotent-tower", not: "", without: &["sockets::", "redis"] },
    Serverless { package: "xtask", not: "", without: &[] },
];

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
                let serverless =
                    SERVERLESS.iter().find(|one| one.package == binary.package && one.not != binary.target)?;
                command.args(["--skip", EXTRAS]);
                command.args(serverless.without.iter().flat_map(|word| ["--skip", word]));
                command.envs(PROGRAMS.map(|name| (name, NONE)));
            }
        }
        Some(command)
    }
}

/// Returns the tests of each binary that `test` leaves to `test extras`, counted by module.
///
/// # Errors
/// A binary cannot list its tests.
pub(super) fn left_out(binaries: &[Binary], libraries: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut left = Vec::new();
    for binary in binaries {
        let modules = by_module(&listed(binary, libraries)?);
        left.extend(modules.into_iter().map(|(module, tests)| format!("{}: {module} ({tests})", binary.title())));
    }
    Ok(left)
}

/// Returns the binaries that leave tests to `test extras`.
///
/// # Errors
/// A binary cannot list its tests.
pub(super) fn having_extras<'a>(binaries: &'a [Binary], libraries: &str) -> Result<Vec<&'a Binary>, Box<dyn Error>> {
    let mut having = Vec::new();
    for binary in binaries {
        if !by_module(&listed(binary, libraries)?).is_empty() {
            having.push(binary);
        }
    }
    Ok(having)
}

fn listed(binary: &Binary, libraries: &str) -> Result<String, Box<dyn Error>> {
    let mut list = binary.command(libraries);
    let (status, names) = capture(list.args([EXTRAS, "--list", "--format", "terse"]))?;
    if status.success() { Ok(names) } else { Err(format!("{} --list: {names}", binary.title()).into()) }
}

/// Counts the tests of each module `…extras::…` in a list of names.
fn by_module(names: &str) -> BTreeMap<String, usize> {
    let mut modules = BTreeMap::new();
    for name in names.lines().filter_map(|line| line.strip_suffix(": test")) {
        let path = name.rsplit_once("::").map_or(name, |(module, _)| module);
        *modules.entry(path.to_owned()).or_default() += 1;
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_are_left_out_are_counted_by_module() {
        let names = "laws::extras::cluster::a: test\nlaws::extras::cluster::b: test\nextras::c: test\n\n3 tests, 0 benchmarks\n";
        let modules = by_module(names);
        assert_eq!(
            modules.into_iter().collect::<Vec<_>>(),
            [("extras".to_owned(), 1), ("laws::extras::cluster".to_owned(), 2)]
        );
    }
}
