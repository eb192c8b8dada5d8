//! Plays with producers and times: the delay queue, the outbox, and ordered messages. All parts of a play are
//! processes on real servers, which are killed, stopped and disconnected.
//!
//! Each process writes its observations into its own file before it continues (`notes`). Effects are in a database.
//! The judge checks both after all work is done.
//!
//! Read in this order: `wire` (the first message to a process), `flaw` (deliberate bugs), `notes`, `process` (the points
//! at which a process kills itself), `workers` (the processes), `plan` (the times of the faults), `phases` (the time with
//! faults and the time after them), `effects`, `database` and `consumers`. Then read the plays: `delay`,
//! `delay_table`, `outbox`, `ordering`.
mod consumers;
mod database;
mod delay;
mod delay_table;
mod effects;
mod flaw;
mod notes;
mod ordering;
mod outbox;
mod phases;
mod plan;
mod process;
mod wire;
mod workers;

use std::path::Path;

pub use self::database::SqlStore;
pub use self::flaw::DeliveryFlaw;
pub use self::outbox::{Ground, OutboxBroker};
use self::process::ProcessContext;
use self::wire::{Role, Start};
use crate::args::{Args, Topology};
use crate::named::named;
use crate::process::begin;
use crate::verdict::Verdict;

named! {
    /// The kind of a play.
    pub enum Play {
        /// The delay queue.
        Delay = "delay",
        /// The delay table.
        DelayTable = "delay-table",
        /// The outbox.
        Outbox = "outbox",
        /// Calls that come after each other.
        Ordering = "ordering",
    }
}

/// The database and the broker of a play.
#[derive(Clone, Debug)]
pub struct Places {
    /// The records of calls that come after each other.
    pub records: Topology,
    /// The outbox and its broker.
    pub outbox: Ground,
    /// The database of the delay table.
    pub table: SqlStore,
}

/// Plays one run.
///
/// # Errors
/// If it cannot be started, or what it is made of does not work.
///
/// # Cancellation
/// Dropping it kills the processes and the servers.
pub(crate) async fn play(
    args: &Args,
    (what, places, flaw): (Play, &Places, Option<DeliveryFlaw>),
    folder: &Path,
) -> anyhow::Result<Verdict> {
    match what {
        Play::Delay => delay::play(args, flaw, folder).await,
        Play::DelayTable => delay_table::play(args, places.table, flaw, folder).await,
        Play::Outbox => outbox::play(args, places.outbox, flaw, folder).await,
        Play::Ordering => ordering::play(args, &places.records, flaw, folder).await,
    }
}

/// Runs a process of a play, as its first line demands, until the end of stdin.
///
/// # Errors
/// The first line is invalid, or the work failed.
///
/// # Cancellation
/// Its tasks continue in the runtime.
pub async fn work() -> anyhow::Result<()> {
    let Some((start, lines)) = begin::<Start>().await? else { return Ok(()) };
    let (context, stop) = ProcessContext::start(start, lines)?;
    match context.start.role {
        Role::DelayProducer => delay::produce(&context).await,
        Role::DelayConsumer => delay::consume(&context, stop).await,
        Role::DelayTaker => delay::take(&context, stop).await,
        Role::TableProducer => delay_table::produce(&context).await,
        Role::TableConsumer | Role::TableWheel => delay_table::consume(&context, stop).await,
        Role::Writer => outbox::write(&context).await,
        Role::Relay => outbox::relay(&context, stop).await,
        Role::OutboxConsumer => outbox::consume(&context, stop).await,
        Role::ChainProducer => ordering::produce(&context).await,
        Role::ChainConsumer => ordering::consume(&context, stop).await,
    }
}
