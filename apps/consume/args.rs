//! The command line.
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::delivery::Field;
use crate::level::Level;

/// Consumes webhook deliveries, duplicates included, with one effect for each key.
#[derive(Debug, Parser)]
#[command(
    name = "consume",
    after_help = "\
`--input -` reads standard input. A key is a string or a number; 1 and \"1\" are the same key.

Lines without a usable key, and deliveries whose handler failed 17 times, go byte for byte to the dead letters,
INPUT.dead.jsonl (stdin.dead.jsonl), which are emptied at each start.

`--source` takes messages from a broker instead, in a build with --features servers; the queue is declared if it is
not there:
  rabbitmq://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME    dead letters in the queue NAME.dead; also amqp://
    &kind=classic|quorum|existing [classic], &heartbeat=SECONDS
  redis-streams://HOST:PORT/DB?stream=NAME&group=NAME    dead letters in the stream NAME:dead
  nats://HOST:PORT?stream=NAME&consumer=NAME             dead letters in the stream NAME-dead; also tls://
    &subject=SUBJECT [NAME.new]: a created stream has this subject, and `--publish` uses it
  pgmq://USER:PASSWORD@HOST:PORT/DATABASE?queue=NAME     dead letters in the queue NAME_dead; PGMQ must be installed
  rocketmq://HOST:PORT?topic=NAME&group=NAME             dead letters in the topic GROUP-dead; HOST:PORT is a name
    server's, 9876 without PORT; built with --features rocketmq
  kafka://USER:PASSWORD@HOST:PORT?topic=NAME&group=NAME  dead letters in the topic NAME-dead; built with
    --features kafka, and kafkas:// with --features kafka-tls
    &member=NAME: a static member, whose restart within 6 s moves no partition
  sqs://REGION?queue=NAME                                dead letters in the queue NAME-dead; built with --features sqs
    &endpoint=URL: an emulator; the credentials are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
The command ends at Ctrl-C or SIGTERM, or with `--idle 5s`, 5 s after the last delivery. With Kafka, this time
begins when the group has assigned partitions.

Exit codes: 0 all is consumed; 1 there are dead letters; 2 it cannot start or go on; 130 interrupted; 143 terminated"
)]
pub(crate) struct Args {
    /// Deliveries, one JSON object a line [default: examples/data/webhooks.jsonl]
    #[arg(long, value_name = "FILE|-")]
    pub(crate) input: Option<PathBuf>,

    /// Take deliveries from this queue of a broker: see below
    #[arg(long, value_name = "URL", conflicts_with = "input")]
    pub(crate) source: Option<String>,

    /// Fill that queue first with the lines of a file, each confirmed, under an id that stays the same
    #[arg(long, value_name = "FILE|-")]
    pub(crate) publish: Option<PathBuf>,

    /// End when no delivery has come for this long, such as 5s; at least 2s, since what failed waits for a second
    #[arg(long, value_name = "TIME", value_parser = idle)]
    pub(crate) idle: Option<Duration>,

    /// The field with the key, with dots for nested fields (payload.repository.id)
    #[arg(long, value_name = "FIELD", default_value = "delivery_id")]
    pub(crate) key: Field,

    /// The store of the keys: `memory`, an SQLite file, or redis://HOST:PORT, redis+sentinel://HOST,HOST/PRIMARY,
    /// redis+cluster://HOST,HOST, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE [default:
    /// target/consume/store.db]
    #[arg(long, value_name = "memory|PATH|URL")]
    pub(crate) store: Option<String>,

    /// The guarantee if a worker is killed; transactional needs a store in an SQLite file, PostgreSQL or MariaDB
    #[arg(long, value_name = "marker|transactional", value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) level: Level,

    /// The SQLite file for effects, one row each; emptied first if the store is memory [default: next to the store, or
    /// in target/consume]
    #[arg(long, value_name = "PATH")]
    pub(crate) effects: Option<PathBuf>,

    /// Deliveries worked on at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,

    /// Every Nth run of the handler fails, to show retries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) fail_every: Option<u64>,

    /// Each run sleeps this long before its effect
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    pub(crate) slow_ms: u64,

    /// One line of JSON on standard output, and other output on standard error
    #[arg(long)]
    pub(crate) json: bool,

    /// Start over: remove the store and the effects first; of a server only this example's keys are forgotten
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// Longer than what is put off waits.
fn idle(text: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_secs(2);
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; say `5s` or `1m 30s`"))?;
    match time >= LEAST {
        true => Ok(time),
        false => {
            Err("less than 2s: what failed, or is in flight elsewhere, waits for a second before it comes again".into())
        }
    }
}
