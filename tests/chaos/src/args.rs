//! The command line.
use std::path::PathBuf;
use std::time::Duration;

use crate::broken_stores::{WEAKNESSES, Weakness};
use crate::delivery::{DeliveryFlaw, Ground, OutboxBroker, Places, Play, SqlStore};
use crate::inbox::{InboxDatabase, InboxFlaw};
use crate::mq::{Flaw, Kind};
use crate::named::named;

/// The help text.
pub const USAGE: &str = "\
cargo xtask chaos redis [--seconds S] [--seed N] [--history FILE]
                        [--topology single|clock|sentinel|cluster | --store URL] [--calm]
cargo xtask chaos nats|pgmq|rabbitmq|rabbitmq-delayed-retry|redis-streams|kafka|kafka-retry-topic|rocketmq|sqs
                        [--seconds S] [--seed N] [--history FILE] [--store redis|sqlite] [--calm]
cargo xtask chaos tiered [--seconds S] [--seed N] [--history FILE] [--store postgres|mariadb] [--calm]
cargo xtask chaos mariadb|postgres|postgres-pgbouncer|inbox-mariadb [--seconds S] [--seed N] [--history FILE] [--calm]
cargo xtask chaos delay [--seconds S] [--seed N] [--calm]
cargo xtask chaos outbox [--seconds S] [--seed N] [--store postgres|sqlite|mariadb]
                         [--broker delay|rabbitmq|redis-streams|rocketmq] [--calm]
cargo xtask chaos delay-table [--seconds S] [--seed N] [--store postgres|sqlite|mariadb] [--calm]
cargo xtask chaos ordering [--seconds S] [--seed N] [--store redis|sqlite] [--calm]

Worker processes handle deliveries on real servers for S seconds (60 by default), while workers and servers are killed, stopped
and disconnected. Then the faults end, and all deliveries must be settled. A judge checks the history, which is written to FILE.

  redis, mariadb  the harness sends the deliveries, and the records are in Redis or MariaDB
  nats, pgmq, rabbitmq, rabbitmq-delayed-retry (RabbitMQ 4.3), redis-streams, kafka, kafka-retry-topic, rocketmq, sqs
                  the broker sends the deliveries. The broker and its publisher have faults, too, and the judge also
                  checks the final contents of the queues. The brokers of kafka and sqs are in memory, and not killed.
  tiered          the records are in a database with Redis as its cache, which is flushed, stopped and killed
  postgres        effect and record are written in one transaction (postgres-pgbouncer: behind PgBouncer, by transaction from 1.24;
                  inbox-mariadb: on MariaDB). Workers die at each crash point, connections are cut during a COMMIT, and the
                  server is killed, but not the pooler. Each key must have its rows exactly once
  delay           a delay queue on Redis. No message may be lost, early or repeated, and only failing ones may be dead letters
  outbox          writers, relays and consumers on a database and a broker. Committed messages must take effect once and
                  in order, and rolled back ones never. Messages that always fail must be dead-lettered, and each message
                  that is given up must have an alert
  delay-table     producers and consumers of a delay table. Committed tasks must take effect once and not early, and rolled
                  back or cancelled ones never
  ordering        chains of messages by `after` and by `sequence`, some of which always fail. Effects must have the order
                  of their chain

  --topology   private servers: a primary and a replica with three sentinels (the default), a single server, a single
               server whose clock is sometimes set forward, or a cluster
  --store      a server of yours (or sqlite:PATH), which has no faults: only the workers have. For a broker: the place of
               the records, a private Redis (the default) or an SQLite file. For `outbox` and `delay-table`: PostgreSQL (the
               default), MariaDB, or an SQLite file, which cannot be killed. For `tiered`: PostgreSQL (the default) or MariaDB
  --broker     for `outbox`: the delay queue on Redis (the default), RabbitMQ, a Redis stream, or RocketMQ
  --enough     requires the events of a run of this number of seconds instead of S, for a busy machine
  --calm       disables all faults. Such a run is vacuous
  --weakness   removes a guard from a script, or gives the workers a bug. The run must then violate an invariant

Prints one JSON object to stdout. Exit code 0: held; 1: violated; 2: vacuous, or not started.";

/// The place of the records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Topology {
    /// An SQLite file of its own: no server, but it can be locked.
    File,
    /// One Redis.
    Single {
        /// Its clock is set forward now and then.
        clock: bool,
    },
    /// A primary and a replica under three sentinels.
    Sentinel,
    /// Three primaries, each with a replica.
    Cluster,
    /// A database server, alone or with Redis as its cache tier.
    Database {
        /// The database server.
        engine: Engine,
        /// True if there is a cache tier.
        cached: bool,
    },
    /// A store that the caller names.
    Outside(String),
}

named! {
    /// A database server.
    pub enum Engine {
        /// PostgreSQL.
        Postgres = "postgres",
        /// MariaDB.
        MariaDb = "mariadb",
    }
}

/// The subject of a run.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A store, under an executor whose deliveries come from the harness.
    Store {
        /// The name on the command line.
        name: &'static str,
        /// The place of the records.
        topology: Topology,
        /// The store is wrong on purpose.
        weakness: Option<&'static Weakness>,
    },
    /// The transactional inbox.
    Inbox {
        /// The database of effects and records.
        database: InboxDatabase,
        /// A worker is wrong on purpose.
        flaw: Option<InboxFlaw>,
    },
    /// Producers, and time.
    Delivery {
        /// The play.
        play: Play,
        /// The database and the broker of the play.
        places: Places,
        /// Something is wrong on purpose.
        flaw: Option<DeliveryFlaw>,
    },
    /// A broker's adapter, under a consumer.
    Broker {
        /// The kind of broker.
        kind: Kind,
        /// The place of the records.
        store: Topology,
        /// A worker or the publisher is wrong on purpose.
        flaw: Option<Flaw>,
    },
}

/// The parsed arguments.
#[derive(Clone, Debug)]
pub struct Args {
    /// Faults happen for so long.
    pub long: Duration,
    /// The length of the run whose minimum of events applies; by default `long`.
    pub enough: Option<Duration>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The history goes here.
    pub history: Option<PathBuf>,
    /// No faults.
    pub calm: bool,
    /// The subject of the run.
    pub subject: Subject,
}

const OPTIONS: [&str; 8] =
    ["--seconds", "--enough", "--seed", "--history", "--store", "--broker", "--topology", "--weakness"];

impl Args {
    /// Parses the arguments after `chaos`.
    ///
    /// # Errors
    /// The text names the unknown argument and the known ones.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut rest = arguments.iter().map(String::as_str);
        let subject = subject(rest.next())?;
        let mut args =
            Self { long: Duration::from_secs(60), enough: None, seed: 0, history: None, calm: false, subject };
        while let Some(name) = rest.next() {
            if name == "--calm" {
                args.calm = true;
                continue;
            }
            if !OPTIONS.contains(&name) {
                return Err(format!("unknown argument `{name}`; the arguments are those below"));
            }
            let value = rest.next().ok_or_else(|| format!("`{name}` stands without a value; give one behind it"))?;
            args.set(name, value)?;
        }
        Ok(args)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let subject = self.name();
        match (name, &mut self.subject) {
            ("--seconds", _) => self.long = seconds(name, value)?,
            ("--enough", _) => self.enough = Some(seconds(name, value)?),
            ("--seed", _) => self.seed = number(name, value)?,
            ("--history", Subject::Delivery { play, .. }) => {
                return Err(format!(
                    "`--history`: {} is judged by notes and rows, not by a history; leave it out",
                    play.name()
                ));
            }
            ("--history", _) => self.history = Some(value.into()),
            ("--broker", Subject::Delivery { play: Play::Outbox, places, .. }) => {
                places.outbox.broker = OutboxBroker::chosen(name, value)?;
            }
            ("--broker", _) => return Err(format!("`--broker` says nothing of {subject}; leave it out")),
            ("--store", Subject::Store { topology: Topology::Database { engine, cached: true }, .. }) => {
                *engine = Engine::chosen(name, value)?;
            }
            ("--store" | "--topology" | "--weakness", Subject::Store { topology: Topology::Database { .. }, .. }) => {
                return Err(format!("`{name}` says nothing of {subject}; leave it out"));
            }
            ("--topology", Subject::Store { topology: place, .. }) => *place = topology(value)?,
            ("--weakness", Subject::Store { weakness: place, .. }) => *place = Some(weakness(value)?),
            (_, Subject::Store { topology: place, .. }) => *place = Topology::Outside(value.to_owned()),
            ("--weakness", Subject::Inbox { flaw: place, .. }) => *place = Some(InboxFlaw::chosen(name, value)?),
            (_, Subject::Inbox { .. }) => return Err(format!("`{name}` says nothing of {subject}; leave it out")),
            ("--weakness", Subject::Delivery { play, flaw: place, .. }) => *place = Some(delivery_flaw(*play, value)?),
            ("--store", Subject::Delivery { play: Play::Ordering, places, .. }) => places.records = store(value)?,
            ("--store", Subject::Delivery { play: Play::Outbox, places, .. }) => {
                places.outbox.store = SqlStore::chosen(name, value)?;
            }
            ("--store", Subject::Delivery { play: Play::DelayTable, places, .. }) => {
                places.table = SqlStore::chosen(name, value)?
            }
            (_, Subject::Delivery { play, .. }) => {
                return Err(format!("`{name}` says nothing of {}; leave it out", play.name()));
            }
            ("--store", Subject::Broker { store: place, .. }) => *place = store(value)?,
            ("--weakness", Subject::Broker { flaw: place, .. }) => *place = Some(Flaw::chosen(name, value)?),
            (_, Subject::Broker { kind, .. }) => {
                return Err(format!("`{name}` says nothing of {}; leave it out", kind.name()));
            }
        }
        Ok(())
    }

    /// The seconds by which the counts of a run are judged.
    pub(crate) fn enough(&self) -> u64 {
        self.enough.unwrap_or(self.long).as_secs()
    }

    /// Returns the name of the subject.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.subject {
            Subject::Store { name, .. } => name,
            Subject::Inbox { database, .. } => database.name(),
            Subject::Delivery { play, .. } => play.name(),
            Subject::Broker { kind, .. } => kind.name(),
        }
    }

    /// Returns whether the run must violate an invariant.
    #[must_use]
    pub fn is_wrong_on_purpose(&self) -> bool {
        match self.subject {
            Subject::Store { weakness, .. } => weakness.is_some(),
            Subject::Inbox { flaw, .. } => flaw.is_some(),
            Subject::Delivery { flaw, .. } => flaw.is_some(),
            Subject::Broker { flaw, .. } => flaw.is_some(),
        }
    }
}

fn subject(name: Option<&str>) -> Result<Subject, String> {
    let stores = |name, topology| Ok(Subject::Store { name, topology, weakness: None });
    let known = || {
        ["redis", "sqlite", "mariadb", "tiered", "postgres", "postgres-pgbouncer", "inbox-mariadb"]
            .into_iter()
            .chain(Kind::ALL.iter().map(|kind| kind.name()))
            .chain(Play::ALL.iter().map(|play| play.name()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match name {
        Some("redis") => stores("redis", Topology::Sentinel),
        Some("sqlite") => stores("sqlite", Topology::File),
        Some("mariadb") => stores("mariadb", Topology::Database { engine: Engine::MariaDb, cached: false }),
        Some("tiered") => stores("tiered", Topology::Database { engine: Engine::Postgres, cached: true }),
        Some("postgres") => Ok(Subject::Inbox { database: InboxDatabase::Postgres, flaw: None }),
        Some("postgres-pgbouncer") => Ok(Subject::Inbox { database: InboxDatabase::PgBouncer, flaw: None }),
        Some("inbox-mariadb") => Ok(Subject::Inbox { database: InboxDatabase::MariaDb, flaw: None }),
        Some(other) => match (Kind::named(other), Play::named(other)) {
            (Some(kind), _) => Ok(Subject::Broker { kind, store: Topology::Single { clock: false }, flaw: None }),
            (None, Some(play)) => {
                let records = Topology::Single { clock: false };
                let places = Places { records, outbox: Ground::default(), table: SqlStore::Postgres };
                Ok(Subject::Delivery { play, places, flaw: None })
            }
            (None, None) => Err(format!("nothing is called `{other}`; known here: {}", known())),
        },
        None => Err(format!("chaos needs one of: {}", known())),
    }
}

fn store(value: &str) -> Result<Topology, String> {
    match value {
        "redis" => Ok(Topology::Single { clock: false }),
        "sqlite" => Ok(Topology::File),
        _ => Err(format!("`--store {value}`: known here: redis, sqlite")),
    }
}

fn delivery_flaw(play: Play, value: &str) -> Result<DeliveryFlaw, String> {
    let known = || DeliveryFlaw::of(play).map(DeliveryFlaw::name).collect::<Vec<_>>().join(", ");
    let flaw = DeliveryFlaw::of(play).find(|flaw| flaw.name() == value);
    flaw.ok_or_else(|| format!("`--weakness {value}`: known here: {}", known()))
}

fn topology(value: &str) -> Result<Topology, String> {
    match value {
        "single" => Ok(Topology::Single { clock: false }),
        "clock" => Ok(Topology::Single { clock: true }),
        "sentinel" => Ok(Topology::Sentinel),
        "cluster" => Ok(Topology::Cluster),
        _ => Err(format!("`--topology {value}`: known here: single, clock, sentinel, cluster")),
    }
}

fn weakness(value: &str) -> Result<&'static Weakness, String> {
    let known = || WEAKNESSES.iter().map(|weakness| weakness.name).collect::<Vec<_>>().join(", ");
    Weakness::named(value).ok_or_else(|| format!("`--weakness {value}`: known here: {}", known()))
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("`{name} {value}`: {value:?} is not a whole number from 0 on; write it in digits"))
}

fn seconds(name: &str, value: &str) -> Result<Duration, String> {
    match number(name, value)? {
        0 => Err(format!("`{name} 0`: nothing happens in no time; give 1 or more")),
        // A day: what runs for longer is no test.
        seconds @ 1..=86_400 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`{name} {value}` is more than a day; give 86400 or less")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, String> {
        Args::parse(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn an_invalid_option_is_refused_with_the_valid_ones() {
        for (arguments, told) in [
            (&[][..], "needs one of: redis"),
            (&["pulsar"], "nothing is called `pulsar`; known here: redis, sqlite, mariadb, tiered, postgres, "),
            (&["rabbitmq", "--store", "mysql"], "known here: redis, sqlite"),
            (&["rabbitmq", "--topology", "single"], "`--topology` says nothing of rabbitmq"),
            (&["rabbitmq", "--weakness", "early-takeover"], "known here: ack-before-run"),
            (&["postgres", "--weakness", "x"], "known here: claim-outside"),
            (&["postgres", "--store", "x"], "says nothing of postgres"),
            (&["delay", "--weakness", "x"], "known here: takes-early"),
            (&["delay", "--store", "redis"], "`--store` says nothing of delay"),
            (&["delay", "--history", "f"], "not by a history"),
            (&["ordering", "--store", "x"], "known here: redis, sqlite"),
            (&["outbox", "--weakness", "takes-early"], "known here: enqueues-outside"),
            (&["outbox", "--store", "redis"], "known here: postgres, sqlite, mariadb"),
            (&["delay-table", "--store", "redis"], "known here: postgres, sqlite, mariadb"),
            (&["delay-table", "--weakness", "takes-early"], "known here: schedules-early"),
            (&["outbox", "--broker", "kafka"], "known here: delay, rabbitmq, redis-streams"),
            (&["ordering", "--broker", "rabbitmq"], "`--broker` says nothing of ordering"),
            (&["redis", "--broker", "rabbitmq"], "`--broker` says nothing of redis"),
            (&["tiered", "--store", "redis"], "known here: postgres, mariadb"),
            (&["mariadb", "--store", "postgres"], "`--store` says nothing of mariadb"),
            (&["tiered", "--weakness", "early-takeover"], "`--weakness` says nothing of tiered"),
            (&["redis", "--sede", "1"], "unknown argument `--sede`"),
            (&["redis", "--seed"], "`--seed` stands without a value"),
            (&["redis", "--seed", "x"], "not a whole number"),
            (&["redis", "--seconds", "0"], "give 1 or more"),
            (&["redis", "--seconds", "86401"], "more than a day"),
            (&["redis", "--enough", "0"], "`--enough 0`"),
        ] {
            assert!(parse(arguments).unwrap_err().contains(told), "{arguments:?}");
        }
    }

    #[test]
    fn options_are_parsed() {
        let args = parse(&["redis", "--seconds", "5", "--seed", "7", "--history", "f", "--calm"]).unwrap();
        assert_eq!((args.long.as_secs(), args.enough(), args.seed, args.calm), (5, 5, 7, true));
        assert_eq!(parse(&["redis", "--enough", "3", "--seconds", "5"]).unwrap().enough(), 3);
        assert_eq!(args.history.unwrap().to_str(), Some("f"));
    }
}
