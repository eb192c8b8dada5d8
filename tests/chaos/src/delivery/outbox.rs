//! The outbox on PostgreSQL, MariaDB or SQLite, with writers whose transactions commit or roll back, relays, a broker
//! (the delay queue on Redis, RabbitMQ, a Redis stream, or RocketMQ), and consumers with the outbox as their log. A table of the writers lists the
//! committed messages. A second outbox contains messages that no consumer receives: RabbitMQ returns them, since no
//! queue is bound, and the delay queue keeps them. Its relays give them up.
//!
//! On the delay queue, the rising numbers of the members show the order in which the broker accepted messages. On
//! RabbitMQ, a tape shows this order (`rabbit`). Streams and topics of RocketMQ keep their messages.
//!
//! Findings:
//!
//! | | |
//! |---|---|
//! | O1 | a message whose transaction committed has no effect |
//! | O2 | a message took effect twice, or took effect although its handler always fails |
//! | O3 | a message whose transaction was rolled back took effect, has a stub, or was sent |
//! | O4 | the broker accepted messages of one aggregate for the first time in another order than they were written |
//! | O5 | a stub has a wrong status, or no final one |
//! | O6 | a message without a receiver was not given up after the maximum of sends, or an alert is missing or wrong |
//! | O7 | the play did not come to an end, or a process ended by itself or not at all |
//! | O8 | the dead letters are not exactly the messages whose handler always fails, or that ran too often |
//!
//! Read in this order: `statements` (the tables of the play), `home` (the outboxes), `rabbit` and `broker` (the servers),
//! `writer`, `relay` and `consumer` (the processes), `remaining` (the final state), `judge`.
mod broker;
mod consumer;
mod home;
mod judge;
mod rabbit;
mod relay;
mod remaining;
mod statements;
mod writer;

use std::path::Path;

use idempotent::Timestamp;
use idempotent::outbox::{Outbox, OutboxError, OutboxErrorKind, OutboxStatus};
use serde::{Deserialize, Serialize};

pub use self::broker::OutboxBroker;
use self::broker::{Broker, Started};
pub(super) use self::consumer::consume;
use self::home::Home;
pub(super) use self::relay::relay;
use self::statements::Statements;
pub(super) use self::writer::write;
use super::database::on_database;
use super::phases;
use super::process::{Point, now};
use super::wire::{Role, Start};
use super::{DeliveryFlaw, SqlStore};
use crate::args::Args;
use crate::verdict::Verdict;

const ROLES: [Role; 6] =
    [Role::Writer, Role::Relay, Role::OutboxConsumer, Role::Writer, Role::Relay, Role::OutboxConsumer];
/// The number of aggregates.
const AGGREGATES: u64 = 6;
/// The table of the second outbox.
const UNWANTED: &str = "idempotent_unwanted";
/// The destination of messages without a receiver.
const NOWHERE: &str = "nowhere";
/// The maximum of sends of each message.
const MOST_SENDS: u32 = 2;
/// A time in µs that is longer than the pause between two sends of such a message.
const LATE: u64 = 4_000_000;

/// The database and the broker of an outbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ground {
    /// The database of the outbox.
    pub store: SqlStore,
    /// The broker of the messages.
    pub broker: OutboxBroker,
}

impl Default for Ground {
    fn default() -> Self {
        Self { store: SqlStore::Postgres, broker: OutboxBroker::Delay }
    }
}

/// A note of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    /// A delivery is with its handler. `member`: what the broker calls it, in the order in which it accepts, where it does.
    Began {
        id: String,
        member: Option<String>,
    },
    /// A run of what always fails.
    Fails {
        id: String,
    },
    /// Messages whose transaction was not committed.
    RolledBack {
        messages: u64,
    },
    /// An alert for a message that was given up.
    Alarmed {
        outbox: String,
        seq: i64,
        sends: u32,
    },
    Dies(Point),
}

/// A message.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Body {
    /// Its handler always fails.
    poison: bool,
}

/// Plays one run.
pub(super) async fn play(
    args: &Args,
    ground: Ground,
    flaw: Option<DeliveryFlaw>,
    folder: &Path,
) -> anyhow::Result<Verdict> {
    on_database!(ground.store, Db => play_on::<Db>(args, ground.broker, flaw, folder).await)
}

async fn play_on<Db: Statements>(
    args: &Args,
    broker: OutboxBroker,
    flaw: Option<DeliveryFlaw>,
    folder: &Path,
) -> anyhow::Result<Verdict> {
    let Started { broker, by_proxy, server } = Broker::start(broker).await?;
    let site = Db::start(folder).await?;
    let home = Home::<Db>::make(&site.url).await?;
    let start = Start::new(args, flaw, by_proxy, site.by_proxy);
    let servers = [server].into_iter().chain(site.server).collect();
    let played = phases::play(args, folder, (start, &ROLES), servers, 9, async || left(&home, &broker).await).await?;
    let left = remaining::left(&home, &broker).await?;
    let (tally, found) = judge::judge(&played.notes, &left);
    let mut verdict = played.verdict(args, (0, tally.committed), found, "O7");
    tally.tell(&mut verdict, args.enough(), &played.stage);
    Ok(verdict)
}

/// Returns the number of unconfirmed messages, and of those that the broker has.
async fn left<Db: Statements>(home: &Home<Db>, broker: &Broker) -> Option<u64> {
    let mut left = broker.unsettled().await?;
    for outbox in [&home.outbox, &home.unwanted] {
        match unconfirmed(home, outbox).await {
            Ok(more) => left += more as u64,
            Err(error) => {
                eprintln!("not looked at: {error}");
                return None;
            }
        }
    }
    Some(left)
}

/// Returns the number of unconfirmed messages. A message that failed repeatedly during an outage of its broker is due
/// minutes later, so an operator sends it again.
async fn unconfirmed<Db: Statements>(home: &Home<Db>, outbox: &Outbox<Db>) -> Result<usize, OutboxError> {
    let stubs = outbox.list(OutboxStatus::Unconfirmed, 0, 1_000).await?;
    let late = Timestamp(now().0.saturating_add(LATE));
    let failed = stubs.iter().filter(|entry| entry.record.failures > 0);
    for entry in failed.filter(|entry| entry.record.due_at.is_some_and(|due| due > late)) {
        let mut tx = Db::begin(&home.pool).await?;
        match outbox.resend(&mut tx, &entry.id, "chaos", "its broker is back").await {
            Ok(()) => tx.commit().await?,
            // Confirmed since.
            Err(error) if error.kind() == OutboxErrorKind::NotFound => tx.rollback().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(stubs.len())
}
