//! The outbox, on PostgreSQL or SQLite: writers whose transactions commit or do not, relays, a broker (the delay queue on
//! Redis, or RabbitMQ), and consumers with the outbox as their log. What was committed is known from a table of the writers'
//! own. Beside it there is a second outbox, of messages that nobody takes: RabbitMQ returns them, since no queue is bound to
//! them, and the delay queue keeps them for nobody. Its relays give them up.
//!
//! In which order the broker accepted what it was sent is known on the delay queue from the members that messages are there,
//! whose numbers rise, and on RabbitMQ from a tape (`rabbit`).
//!
//! Findings:
//!
//! | | |
//! |---|---|
//! | O1 | a message whose transaction committed has no effect |
//! | O2 | one took effect twice, or is not to take effect |
//! | O3 | one whose transaction was rolled back took effect, has a stub, or was sent |
//! | O4 | messages of one aggregate were accepted by the broker, for the first time, in another order than they were written |
//! | O5 | a stub says something else than what has become of its message, or nothing yet |
//! | O6 | a message that nobody takes was not given up after as many sendings as are allowed, or nobody was told; or somebody was told of one that was not given up |
//! | O7 | it did not come to rest, or a process ended by itself or not at all |
//! | O8 | the broker's dead letters are not the messages whose handler always fails, or that ran more often than is allowed |
//!
//! Read in this order: `statements` (the play's own tables), `database`, `rabbit` and `broker` (where it is played), `writer`,
//! `relay` and `consumer` (the processes), `rows` (what is left), `judge`.
mod broker;
mod consumer;
mod database;
mod judge;
mod rabbit;
mod relay;
mod rows;
mod statements;
mod writer;

use std::path::Path;

use idempotent::Timestamp;
use idempotent::outbox::{Outbox, OutboxError, OutboxErrorKind, OutboxStatus};
use serde::{Deserialize, Serialize};
use sqlx::{Postgres, Sqlite};
use tokio::time::Instant;

pub use self::broker::OutboxBroker;
use self::broker::{Broker, Started};
pub(super) use self::consumer::consume;
pub use self::database::OutboxStore;
use self::database::{Database, Home};
pub(super) use self::relay::relay;
pub(super) use self::writer::write;
use super::crew::Crew;
use super::hands::{Point, now};
use super::stage::Stage;
use super::wire::{Role, Start};
use super::{DeliveryFlaw, notes};
use crate::args::Args;
use crate::patience::PATIENCE;
use crate::verdict::Verdict;

const ROLES: [Role; 6] =
    [Role::Writer, Role::Relay, Role::OutboxConsumer, Role::Writer, Role::Relay, Role::OutboxConsumer];
/// How many aggregates there are.
const AGGREGATES: u64 = 6;
/// Of what always fails; what is killed counts, too.
const RETRIES: u32 = 12;
/// The table of the second outbox.
const UNWANTED: &str = "idempotent_unwanted";
/// Where its messages are to go.
const NOWHERE: &str = "nowhere";
/// How often they are sent.
const MOST_SENDS: u32 = 2;
/// Longer than between two sendings of what nobody takes, in µs.
const LATE: u64 = 4_000_000;

/// What an outbox is played on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ground {
    /// Where it lies.
    pub store: OutboxStore,
    /// What its messages go through.
    pub broker: OutboxBroker,
}

impl Default for Ground {
    fn default() -> Self {
        Self { store: OutboxStore::Postgres, broker: OutboxBroker::Delay }
    }
}

/// What processes note.
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
    /// Somebody was told that a message was given up.
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
    match ground.store {
        OutboxStore::Postgres => play_on::<Postgres>(args, ground.broker, flaw, folder).await,
        OutboxStore::Sqlite => play_on::<Sqlite>(args, ground.broker, flaw, folder).await,
    }
}

async fn play_on<Db: Database>(
    args: &Args,
    broker: OutboxBroker,
    flaw: Option<DeliveryFlaw>,
    folder: &Path,
) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let Started { broker, by_proxy, server } = Broker::start(broker).await?;
    let site = Db::start(folder).await?;
    let home = Home::<Db>::make(&site.url).await?;
    let start = Start {
        id: 0,
        role: Role::Writer,
        seed: args.seed,
        broker: by_proxy,
        database: site.by_proxy,
        in_transaction: true,
        notes: folder.to_owned(),
        flaw,
        peace: args.calm,
    };
    let crew = Crew::start(folder, start, &ROLES)?;
    let mut stage = Stage::new(crew, [server].into_iter().chain(site.server).collect());
    stage.harm(args, ROLES.len()).await?;
    // What is wrong on purpose need not come to an end.
    let patience = if flaw.is_some() { PATIENCE / 9 } else { PATIENCE };
    let rests = stage.settle(patience, async || left(&home, &broker).await).await?;
    let stuck = stage.crew.dismiss().await?;
    let seen = notes::read::<Note>(folder, stage.crew.last())?;
    let left = rows::left(&home, &broker).await?;
    let (tally, found) = judge::judge(&seen, &left);
    let mut verdict = Verdict::of_rows(args, stage.harms, (stage.crew.kills, 0, 0, tally.committed), began.elapsed());
    verdict.find(found);
    verdict.find((!rests).then(|| "O7: it does not come to rest".to_owned()));
    verdict
        .find(stage.crew.by_themselves.iter().map(|id| format!("O7: process {id} ended by itself; its log says why")));
    verdict.find(stuck.iter().map(|id| format!("O7: process {id} did not end when it was told to")));
    tally.tell(&mut verdict, args.enough(), &stage);
    Ok(verdict)
}

/// Returns the number of unconfirmed messages, and of those that the broker has.
async fn left<Db: Database>(home: &Home<Db>, broker: &Broker) -> Option<u64> {
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

/// How many there are. What failed again and again while its broker was away is not due for minutes: since that is back, a
/// person sends it again.
async fn unconfirmed<Db: Database>(home: &Home<Db>, outbox: &Outbox<Db>) -> Result<usize, OutboxError> {
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
