//! The delay table on PostgreSQL, MariaDB or SQLite. Producers schedule most tasks in the transaction of a row, which
//! commits or rolls back, and the other tasks alone. Consumers poll or use a timing wheel. Effects and records are
//! written in one transaction of the same database.
//!
//! Findings:
//!
//! | | |
//! |---|---|
//! | T1 | a scheduled task that was not cancelled has neither taken effect nor died |
//! | T2 | a task was delivered before its time |
//! | T3 | a task took effect twice, although it was rolled back, or although it was cancelled before its time |
//! | T4 | the dead letters are not exactly the tasks whose handler always fails |
//! | T5 | the table does not come to rest, or a process ended by itself or not at all |
//!
//! Read in this order: `statements` (the tables of the play), `site` (the open tables), `producer` and `consumer` (the
//! processes), `judge`.
mod consumer;
mod judge;
mod producer;
mod site;
mod statements;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use self::consumer::consume;
pub(super) use self::producer::produce;
use self::site::OpenTable;
use self::statements::TaskTables;
use super::database::on_database;
use super::phases;
use super::process::Point;
use super::wire::{Role, Start};
use super::{DeliveryFlaw, SqlStore};
use crate::args::Args;
use crate::verdict::Verdict;

const ROLES: [Role; 6] = [
    Role::TableProducer,
    Role::TableConsumer,
    Role::TableWheel,
    Role::TableConsumer,
    Role::TableWheel,
    Role::TableProducer,
];
/// Short, so that many deliveries of killed consumers return within a run.
const VISIBILITY: Duration = Duration::from_millis(1_500);

/// A time of the machine's clock in µs.
type Time = u64;

/// A note of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    /// The database accepted a task that has no transaction.
    Kept {
        id: String,
    },
    /// A transaction was rolled back.
    RolledBack {
        id: String,
    },
    /// The producer is about to cancel a task.
    Cancelling {
        id: String,
    },
    /// The database confirmed a cancellation at this time.
    Cancelled {
        id: String,
        heard: Time,
    },
    /// A delivery reached its handler at this time.
    Began {
        id: String,
        at: Time,
    },
    /// A run of a task that always fails.
    Fails {
        id: String,
    },
    Dies(Point),
}

/// Plays one run.
pub(super) async fn play(
    args: &Args,
    store: SqlStore,
    flaw: Option<DeliveryFlaw>,
    folder: &Path,
) -> anyhow::Result<Verdict> {
    on_database!(store, Db => play_on::<Db>(args, flaw, folder).await)
}

async fn play_on<Db: TaskTables>(args: &Args, flaw: Option<DeliveryFlaw>, folder: &Path) -> anyhow::Result<Verdict> {
    let site = Db::start(folder).await?;
    let open = OpenTable::<Db>::create(&site.url).await?;
    let start = Start::new(args, flaw, String::new(), site.by_proxy);
    let servers = site.server.into_iter().collect();
    let played = phases::play(args, folder, (start, &ROLES), servers, 9, async || open.unsettled().await).await?;
    let (tally, found) = judge::judge(&played.notes, &open.remaining().await?);
    let mut verdict = played.verdict(args, (0, tally.scheduled), found, "T5");
    tally.tell(&mut verdict, args.enough(), &played.stage);
    Ok(verdict)
}
