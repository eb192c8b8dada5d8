//! The command line.
use std::path::PathBuf;

use clap::Parser;

use crate::delivery::Field;

/// Consumes webhook deliveries, duplicates included, with one effect for each key.
#[derive(Debug, Parser)]
#[command(
    name = "consume",
    after_help = "\
`--input -` reads standard input. A key is a string or a number; 1 and \"1\" are the same key.

Lines without a usable key, and deliveries whose handler failed 17 times, go byte for byte to the dead letters,
INPUT.dead.jsonl (stdin.dead.jsonl), which are emptied at each start.

Exit codes: 0 all is consumed; 1 there are dead letters; 2 it cannot start or go on; 130 interrupted; 143 terminated"
)]
pub(crate) struct Args {
    /// Deliveries, one JSON object a line [default: examples/data/webhooks.jsonl]
    #[arg(long, value_name = "FILE|-")]
    pub(crate) input: Option<PathBuf>,

    /// The field with the key, dotted where it lies deeper (payload.repository.id)
    #[arg(long, value_name = "FIELD", default_value = "delivery_id")]
    pub(crate) key: Field,

    /// Where keys are remembered: `memory`, an SQLite file, or redis://HOST:PORT, redis+sentinel://HOST,HOST/PRIMARY,
    /// redis+cluster://HOST,HOST [default: target/consume/store.db]
    #[arg(long, value_name = "memory|PATH|URL")]
    pub(crate) store: Option<String>,

    /// The SQLite file that effects go to, one row each; emptied first if the store is memory [default: beside the
    /// store, or in target/consume]
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

    /// One line of JSON on standard output, all else on standard error
    #[arg(long)]
    pub(crate) json: bool,

    /// Start over: remove the store and the effects first; of a server only this example's keys are forgotten
    #[arg(long)]
    pub(crate) fresh: bool,
}
