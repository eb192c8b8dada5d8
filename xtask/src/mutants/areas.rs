//! The parts of the source that make decisions, and the tests that must detect their mutants.
use std::error::Error;
use std::path::Path;

use crate::check::sources::paths;

/// A part of the source.
#[derive(Debug)]
pub(crate) struct Area {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    folder: &'static str,
    /// Folders and files without decisions.
    left_out: &'static [&'static str],
    /// The arguments of `cargo test` for the tests of the package, the unit tests first.
    own: &'static [&'static [&'static str]],
    /// The tests of other packages.
    others: &'static [TestSet],
}

/// Some tests: a package, and the arguments of `cargo test` after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestSet(pub(super) &'static str, &'static [&'static str]);

impl Area {
    /// Returns the file of the crate's root module.
    pub(super) fn crate_root(&self) -> String {
        let file = if self.own[0].contains(&"--bins") { "main.rs" } else { "lib.rs" };
        let package = self.folder.split("/src").next().unwrap_or_default();
        format!("{package}/src/{file}")
    }

    /// Returns the arguments that build the unit tests.
    pub(super) fn unit_tests(&self) -> &'static [&'static str] {
        TestSet(self.package, self.own[0]).build_arguments()
    }

    /// Returns the test sets, the unit tests first.
    pub(super) fn test_sets(&self) -> impl Iterator<Item = TestSet> {
        self.own.iter().map(|arguments| TestSet(self.package, arguments)).chain(self.others.iter().copied())
    }
}

impl TestSet {
    /// Returns the arguments that select what is built.
    pub(super) fn build_arguments(self) -> &'static [&'static str] {
        self.1.split(|word| *word == "--").next().unwrap_or_default()
    }

    /// Returns the arguments of the test programs.
    pub(super) fn run_arguments(self) -> &'static [&'static str] {
        self.1.get(self.build_arguments().len() + 1..).unwrap_or_default()
    }
}

const UNIT: &[&str] = &["--lib"];
const SUITE: &[&str] = &["--test", "suite"];
/// Texts for people.
const TEXTS: &[&str] = &["docs", "docs.rs", "error.rs", "lib.rs"];

const fn area(
    (name, package): (&'static str, &'static str),
    folder: &'static str,
    left_out: &'static [&'static str],
    own: &'static [&'static [&'static str]],
    others: &'static [TestSet],
) -> Area {
    Area { name, package, folder, left_out, own, others }
}

pub(super) const AREAS: [Area; 17] = [
    area(
        ("core", "idempotent-core"),
        "idempotent-core/src",
        // Texts for people, and sources of time and randomness.
        &["observe", "clock.rs", "entropy.rs", "error.rs", "rejection.rs", "lib.rs"],
        &[UNIT],
        &[
            TestSet("idempotent-tests", &["--no-default-features", "--test", "suite"]),
            TestSet("idempotent-tests", &["--no-default-features", "--test", "spans"]),
            TestSet("idempotent-mq", SUITE),
            TestSet("idempotent-alert", SUITE),
        ],
    ),
    // The test `logs` has a subscriber of its own.
    area(("mq", "idempotent-mq"), "idempotent-mq/src", TEXTS, &[UNIT, SUITE, &["--test", "logs"]], &[]),
    area(
        ("tower", "idempotent-tower"),
        "web/tower/src",
        TEXTS,
        &[
            &["--lib", "--features", "axum"],
            &["--test", "suite", "--", "layer::", "attribute::", "sockets::", "--skip", "extras::"],
        ],
        &[
            // The middleware of actix-web runs the layer on its worker.
            TestSet("idempotent-actix-web", SUITE),
        ],
    ),
    area(
        ("outbox", "idempotent-sqlx"),
        "stores/sqlx/src/outbox",
        TEXTS,
        &[&["--lib", "--features", "mysql,outbox,postgres,sqlite"], &["--test", "suite", "--", "outbox::sqlite::"]],
        &[],
    ),
    area(
        ("metrics", "idempotent-metrics"),
        "operate/metrics/src",
        TEXTS,
        &[
            &["--lib", "--features", "delay,delay-queue,mq,outbox,redis,sqlite"],
            // A real Prometheus checks the rules, which have no mutants.
            &["--test", "suite", "--", "--skip", "prometheus::"],
        ],
        &[],
    ),
    area(("otel", "idempotent-otel"), "operate/otel/src", TEXTS, &[&["--lib", "--features", "mq"], SUITE], &[]),
    area(("rabbitmq", "idempotent-rabbitmq"), "brokers/rabbitmq/src", TEXTS, &[UNIT, SUITE], &[]),
    area(("kafka", "idempotent-kafka"), "brokers/kafka/src", TEXTS, &[UNIT, SUITE], &[]),
    area(("nats", "idempotent-nats"), "brokers/nats/src", TEXTS, &[UNIT, SUITE], &[]),
    area(("sqs", "idempotent-sqs"), "brokers/sqs/src", TEXTS, &[UNIT, SUITE], &[]),
    area(("pgmq", "idempotent-pgmq"), "brokers/pgmq/src", TEXTS, &[UNIT, SUITE], &[]),
    area(("redis-streams", "idempotent-redis-streams"), "brokers/redis-streams/src", TEXTS, &[UNIT, SUITE], &[]),
    area(("tonic", "idempotent-tonic"), "web/tonic/src", TEXTS, &[UNIT, SUITE], &[]),
    area(("actix", "idempotent-actix-web"), "web/actix/src", TEXTS, &[UNIT, SUITE], &[]),
    area(
        ("operate", "idempotent-operate"),
        "operate/library/src",
        &["error.rs", "lib.rs", "text.rs"],
        &[&["--lib", "--features", "delay,delay-queue,outbox,sqlite"], SUITE],
        &[
            // The two programs over the library. With branches for mutants, the page reads a large file for too long.
            TestSet("idempotent-cli", SUITE),
            TestSet(
                "idempotent-console",
                &["--test", "suite", "--", "--skip", "browser::", "--skip", "the_audit_page"],
            ),
        ],
    ),
    area(
        ("console", "idempotent-console"),
        "operate/console/src",
        &["assets.rs", "error.rs", "lib.rs", "pages", "random.rs"],
        &[
            UNIT,
            // A browser reads the pages, which have no mutants.
            &["--test", "suite", "--", "--skip", "browser::"],
        ],
        &[],
    ),
    area(
        ("cli", "idempotent-cli"),
        "operate/cli/src",
        &["arguments", "exit.rs", "failure.rs", "main.rs", "output", "output.rs"],
        &[&["--bins"], SUITE],
        &[],
    ),
];

/// Returns the source files of an area, in order, without test modules.
pub(super) fn files(area: &Area) -> Result<Vec<String>, Box<dyn Error>> {
    let folder = Path::new(area.folder);
    let is_test = |stem: &Path| {
        let name = stem.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with("tests") || name.ends_with("interleavings") || stem.iter().any(|part| part == "tests")
    };
    let mut files = Vec::new();
    for path in paths()?.into_iter().filter(|path| path.starts_with(folder) && path.extension() == Some("rs".as_ref()))
    {
        let stem = path.with_extension("");
        let mut left_out = area.left_out.iter().map(|out| folder.join(out));
        if !is_test(&stem) && !left_out.any(|out| path.starts_with(&out) || stem == out) {
            files.push(path.to_string_lossy().into_owned());
        }
    }
    files.sort();
    Ok(files)
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
}
