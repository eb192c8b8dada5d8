//! The parts of the source that make decisions, and the tests that must detect their mutants.
use std::error::Error;
use std::fs;
use std::path::Path;

use crate::tools::root;

/// A part of the source.
#[derive(Debug)]
pub(crate) struct Area {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    folder: &'static str,
    /// Folders and files without decisions.
    left_out: &'static [&'static str],
    /// The test sets, the unit tests first. A mutant that one of them detects is not tested with the others.
    pub(super) test_sets: &'static [TestSet],
    /// Tests that take seconds. They run only if all mutants are in one build, and only for mutants that they reach.
    pub(super) slow_test_sets: &'static [TestSet],
}

/// Some tests of one package.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct TestSet {
    pub(super) package: &'static str,
    /// The arguments of `cargo test` after the package.
    pub(super) arguments: &'static [&'static str],
}

impl Area {
    /// Returns the file of the crate's root module.
    pub(super) fn crate_root(&self) -> String {
        let file = if self.test_sets[0].arguments.contains(&"--bins") { "main.rs" } else { "lib.rs" };
        let package = self.folder.split("/src").next().unwrap_or_default();
        format!("{package}/src/{file}")
    }
}

impl TestSet {
    /// Returns the arguments that select what is built.
    pub(super) fn build_arguments(&self) -> &'static [&'static str] {
        self.arguments.split(|word| *word == "--").next().unwrap_or_default()
    }

    /// Returns the arguments of the test programs.
    pub(super) fn run_arguments(&self) -> &'static [&'static str] {
        self.arguments.get(self.build_arguments().len() + 1..).unwrap_or_default()
    }
}

/// A browser reads the pages, which have no mutants.
const WITHOUT_BROWSER: &[&str] = &["--test", "suite", "--", "--skip", "browser::"];

/// The tests of the engine on the memory store, without tests that take seconds and tests of the test kit.
const QUICK: &[&str] = &[
    "--no-default-features",
    "--test",
    "suite",
    "--",
    "--skip",
    "extras::",
    "--skip",
    "executor::chaos::",
    "--skip",
    "executor::runtimes::",
    "--skip",
    "executor::rules::waiting_ends_at_its_limit_with_a_tiny_hint_too",
    "--skip",
    "order::missing_capability",
    "--skip",
    "testing::",
];

/// The tests of the engine on the memory store that take seconds, and those of the test kit.
const SLOW: &[&str] = &[
    "--no-default-features",
    "--test",
    "suite",
    "--",
    "extras::",
    "executor::chaos::",
    "executor::runtimes::",
    "executor::rules::waiting_ends_at_its_limit_with_a_tiny_hint_too",
    "order::missing_capability",
    "testing::",
];

/// The unit tests of an adapter, and its tests on real servers.
const UNIT: &[&str] = &["--lib"];
const SUITE: &[&str] = &["--test", "suite"];

pub(super) const AREAS: [Area; 17] = [
    Area {
        name: "core",
        package: "idempotent-core",
        folder: "idempotent-core/src",
        // Texts for people, and sources of time and randomness.
        left_out: &["observe", "clock.rs", "entropy.rs", "error.rs", "rejection.rs", "lib.rs"],
        test_sets: &[
            // The schedules of threads take seconds.
            TestSet { package: "idempotent-core", arguments: &["--lib", "--", "--skip", "interleavings"] },
            TestSet { package: "idempotent-tests", arguments: QUICK },
            TestSet { package: "idempotent-mq", arguments: &["--test", "suite"] },
            TestSet { package: "idempotent-alert", arguments: &["--test", "suite"] },
        ],
        slow_test_sets: &[
            TestSet { package: "idempotent-core", arguments: &["--lib", "--", "interleavings"] },
            TestSet { package: "idempotent-tests", arguments: SLOW },
            TestSet { package: "idempotent-tests", arguments: &["--no-default-features", "--test", "spans"] },
        ],
    },
    Area {
        name: "mq",
        package: "idempotent-mq",
        folder: "idempotent-mq/src",
        left_out: &["docs.rs", "error.rs", "lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-mq", arguments: &["--lib"] },
            TestSet { package: "idempotent-mq", arguments: &["--test", "suite"] },
        ],
        // One test with a subscriber of its own.
        slow_test_sets: &[TestSet { package: "idempotent-mq", arguments: &["--test", "logs"] }],
    },
    Area {
        name: "tower",
        package: "idempotent-tower",
        folder: "web/tower/src",
        left_out: &["lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-tower", arguments: &["--lib", "--features", "axum"] },
            TestSet { package: "idempotent-tower", arguments: &["--test", "suite", "--", "layer::"] },
            // The middleware of actix-web runs the layer on its worker.
            TestSet { package: "idempotent-actix-web", arguments: &["--test", "suite"] },
        ],
        slow_test_sets: &[TestSet {
            package: "idempotent-tower",
            arguments: &["--test", "suite", "--", "attribute::", "sockets::", "--skip", "extras::"],
        }],
    },
    Area {
        name: "outbox",
        package: "idempotent-sqlx",
        folder: "stores/sqlx/src/outbox",
        left_out: &[],
        test_sets: &[
            TestSet { package: "idempotent-sqlx", arguments: &["--lib", "--features", "mysql,outbox,postgres,sqlite"] },
            TestSet { package: "idempotent-sqlx", arguments: &["--test", "suite", "--", "outbox::sqlite::"] },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "metrics",
        package: "idempotent-metrics",
        folder: "operate/metrics/src",
        left_out: &["lib.rs"],
        test_sets: &[
            TestSet {
                package: "idempotent-metrics",
                arguments: &["--lib", "--features", "delay,delay-queue,mq,outbox,redis,sqlite"],
            },
            // A real Prometheus checks the rules, which have no mutants.
            TestSet { package: "idempotent-metrics", arguments: &["--test", "suite", "--", "--skip", "prometheus::"] },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "otel",
        package: "idempotent-otel",
        folder: "operate/otel/src",
        left_out: &["lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-otel", arguments: &["--lib", "--features", "mq"] },
            TestSet { package: "idempotent-otel", arguments: &["--test", "suite"] },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "rabbitmq",
        package: "idempotent-rabbitmq",
        folder: "brokers/rabbitmq/src",
        left_out: &["docs", "error.rs", "lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-rabbitmq", arguments: UNIT },
            TestSet { package: "idempotent-rabbitmq", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "kafka",
        package: "idempotent-kafka",
        folder: "brokers/kafka/src",
        left_out: &["docs", "error.rs", "lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-kafka", arguments: UNIT },
            TestSet { package: "idempotent-kafka", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "nats",
        package: "idempotent-nats",
        folder: "brokers/nats/src",
        left_out: &["docs", "error.rs", "lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-nats", arguments: UNIT },
            TestSet { package: "idempotent-nats", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "sqs",
        package: "idempotent-sqs",
        folder: "brokers/sqs/src",
        left_out: &["docs", "error.rs", "lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-sqs", arguments: UNIT },
            TestSet { package: "idempotent-sqs", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "pgmq",
        package: "idempotent-pgmq",
        folder: "brokers/pgmq/src",
        left_out: &["docs", "error.rs", "lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-pgmq", arguments: UNIT },
            TestSet { package: "idempotent-pgmq", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "redis-streams",
        package: "idempotent-redis-streams",
        folder: "brokers/redis-streams/src",
        left_out: &["docs", "error.rs", "lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-redis-streams", arguments: UNIT },
            TestSet { package: "idempotent-redis-streams", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "tonic",
        package: "idempotent-tonic",
        folder: "web/tonic/src",
        left_out: &["lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-tonic", arguments: UNIT },
            TestSet { package: "idempotent-tonic", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "actix",
        package: "idempotent-actix-web",
        folder: "web/actix/src",
        left_out: &["lib.rs"],
        test_sets: &[
            TestSet { package: "idempotent-actix-web", arguments: UNIT },
            TestSet { package: "idempotent-actix-web", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "operate",
        package: "idempotent-operate",
        folder: "operate/library/src",
        left_out: &["error.rs", "lib.rs", "text.rs"],
        test_sets: &[
            TestSet {
                package: "idempotent-operate",
                arguments: &["--lib", "--features", "delay,delay-queue,outbox,sqlite"],
            },
            TestSet { package: "idempotent-operate", arguments: SUITE },
        ],
        // The two programs over the library. With branches for mutants, the page reads a large file for too long.
        slow_test_sets: &[
            TestSet { package: "idempotent-cli", arguments: SUITE },
            TestSet {
                package: "idempotent-console",
                arguments: &["--test", "suite", "--", "--skip", "browser::", "--skip", "the_audit_page"],
            },
        ],
    },
    Area {
        name: "console",
        package: "idempotent-console",
        folder: "operate/console/src",
        left_out: &["assets.rs", "error.rs", "lib.rs", "pages", "random.rs"],
        test_sets: &[
            TestSet { package: "idempotent-console", arguments: UNIT },
            TestSet { package: "idempotent-console", arguments: WITHOUT_BROWSER },
        ],
        slow_test_sets: &[],
    },
    Area {
        name: "cli",
        package: "idempotent-cli",
        folder: "operate/cli/src",
        left_out: &["arguments", "exit.rs", "failure.rs", "main.rs", "output", "output.rs"],
        test_sets: &[
            TestSet { package: "idempotent-cli", arguments: &["--bins"] },
            TestSet { package: "idempotent-cli", arguments: SUITE },
        ],
        slow_test_sets: &[],
    },
];

/// Returns the test sets for a file, the one that detects most of its mutants first: the unit tests if the file has some.
/// With `unit`, only the unit tests.
///
/// # Errors
/// The file cannot be read.
pub(super) fn test_sets(area: &'static Area, file: &str, unit: bool) -> Result<Vec<&'static TestSet>, Box<dyn Error>> {
    let has_unit_tests = fs::read_to_string(root()?.join(file))?.contains("#[cfg(test)]");
    let mut sets: Vec<_> = area.test_sets.iter().collect();
    if unit {
        sets.truncate(1);
    } else if !has_unit_tests {
        sets.reverse();
    }
    Ok(sets)
}

/// Returns the source files of an area, in order, without test modules.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn files(area: &Area) -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    collect(&root()?.join(area.folder), &mut found)?;
    let root = root()?;
    let mut files = Vec::new();
    for path in found {
        let name = path.strip_prefix(&root)?.to_str().ok_or("a file whose name is no text")?.replace('\\', "/");
        let inside = name.strip_prefix(area.folder).unwrap_or(&name).trim_start_matches('/');
        let is_test =
            inside.ends_with("tests.rs") || inside.ends_with("interleavings.rs") || inside.contains("/tests/");
        let is_left_out = area
            .left_out
            .iter()
            .any(|out| inside == *out || inside.starts_with(&format!("{out}/")) || inside == format!("{out}.rs"));
        if name.ends_with(".rs") && !is_test && !is_left_out {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, found: &mut Vec<std::path::PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_area_has_files_and_no_tests_among_them() {
        for area in &AREAS {
            let files = files(area).unwrap();
            assert!(files.len() >= 5, "{}: {files:?}", area.name);
            assert!(files.iter().all(|file| !file.ends_with("tests.rs")), "{files:?}");
            assert!(area.left_out.iter().all(|out| !files.contains(&format!("{}/{out}", area.folder))), "{files:?}");
        }
    }
    #[test]
    fn the_arguments_of_the_programs_follow_the_dashes() {
        let set = |arguments| TestSet { package: "p", arguments };
        let both = set(&["--lib", "--", "--skip", "slow"]);
        assert_eq!((both.build_arguments(), both.run_arguments()), (&["--lib"][..], &["--skip", "slow"][..]));
        let one = set(&["--lib"]);
        assert_eq!((one.build_arguments(), one.run_arguments()), (&["--lib"][..], &[][..]));
    }
}
