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
//! | T5 | the table does not come to rest |
//! | T6 | a process ended by itself or not at all |
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
use tokio::time::Instant;

pub(super) use self::consumer::consume;
pub(super) use self::producer::produce;
use self::site::OpenTable;
use self::statements::TaskTables;
use super::database::on_database;
use super::phases::Stage;
use super::process::Point;
use super::wire::{Role, Start};
use super::workers::Workers;
use super::{DeliveryFlaw, SqlStore, notes};
use crate::args::Args;
use crate::deadline::PATIENCE;
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
/// The number of retries of a failing handler. Killed runs count, too.
const RETRIES: u32 = 12;

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
    let began = Instant::now();
    let site = Db::start(folder).await?;
    let open = OpenTable::<Db>::create(&site.url).await?;
    let start = Start {
        id: 0,
        role: Role::TableProducer,
        seed: args.seed,
        broker: String::new(),
        database: site.by_proxy,
        in_transaction: true,
        notes: folder.to_owned(),
        flaw,
        peace: args.calm,
    };
    let workers = Workers::start(folder, start, &ROLES)?;
    let mut stage = Stage::new(workers, site.server.into_iter().collect());
    stage.harm(args, ROLES.len()).await?;
    // A deliberate flaw may keep a run from ending.
    let patience = if flaw.is_some() { PATIENCE / 9 } else { PATIENCE };
    let rests = stage.settle(patience, async || open.unsettled().await).await?;
    let stuck = stage.workers.dismiss().await?;
    let seen = notes::read::<Note>(folder, stage.workers.last())?;
    let (tally, found) = judge::judge(&seen, &open.remaining().await?);
    let mut verdict =
        Verdict::of_rows(args, stage.harms, (stage.workers.kills, 0, 0, tally.scheduled), began.elapsed());
    verdict.find(found);
    verdict.find((!rests).then(|| "T5: the table does not come to rest".to_owned()));
    verdict.find(
        stage.workers.by_themselves.iter().map(|id| format!("T6: process {id} ended by itself; its log says why")),
    );
    verdict.find(stuck.iter().map(|id| format!("T6: process {id} did not end after the stop signal")));
    tally.tell(&mut verdict, args.enough(), &stage);
    Ok(verdict)
}
