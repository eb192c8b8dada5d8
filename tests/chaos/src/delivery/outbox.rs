//! The outbox on PostgreSQL: writers whose transactions commit or do not, relays, a broker (the delay queue on Redis), and
//! consumers with the outbox as their log. What was committed is known from a table of the writers' own.
//!
//! Findings:
//!
//! | | |
//! |---|---|
//! | O1 | a message whose transaction committed has no effect |
//! | O2 | one took effect twice |
//! | O3 | one whose transaction was rolled back took effect, or has a stub |
//! | O4 | messages of one aggregate were accepted by the broker, for the first time, in another order than they were written |
//! | O5 | a stub says something else than what has become of its message, or nothing yet |
//! | O7 | it did not come to rest, or a process ended by itself or not at all |
mod consumer;
mod judge;
mod relay;
mod rows;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::PostgresStore;
use idempotent::delay_queue::{DelayQueue, DelayQueueBuilder};
use idempotent::outbox::Outbox;
use idempotent_testkit::proxy::Proxy;
use idempotent_testkit::servers::{PostgresServer, RedisServer};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, sleep};

pub(super) use self::consumer::consume;
pub(super) use self::relay::relay;
pub(super) use self::writer::write;
use super::crew::Crew;
use super::hands::Point;
use super::stage::Stage;
use super::wire::{Role, Start};
use super::{DeliveryFlaw, notes};
use crate::args::Args;
use crate::crew::PATIENCE;
use crate::verdict::Verdict;

const ROLES: [Role; 6] =
    [Role::Writer, Role::Relay, Role::OutboxConsumer, Role::Writer, Role::Relay, Role::OutboxConsumer];
const TOPIC: &str = "orders";
/// Of the broker.
const VISIBILITY: Duration = Duration::from_millis(1_500);
const SLOTS: u16 = 2;
/// How many aggregates there are.
const AGGREGATES: u64 = 6;

/// What processes note.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    /// A delivery is with its handler. `member`: what the broker calls it, in the order in which it accepts.
    Began {
        id: String,
        member: String,
    },
    /// Messages whose transaction was not committed.
    RolledBack {
        messages: u64,
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
pub(super) async fn play(args: &Args, flaw: Option<DeliveryFlaw>, folder: &Path) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let broker = tokio::task::spawn_blocking(|| RedisServer::builder().aof().start());
    let database = tokio::task::spawn_blocking(PostgresServer::start);
    let broker = Arc::new(broker.await.context("Redis does not start")?);
    let database = Arc::new(database.await.context("PostgreSQL does not start")?);
    rows::make(&database).await?;
    let (to_broker, to_database) = (Proxy::start(&broker.address()).await, Proxy::start(&database.address()).await);
    let start = Start {
        id: 0,
        role: Role::Writer,
        seed: args.seed,
        broker: to_broker.url(),
        database: database.url().replace(&database.address(), &to_database.address()),
        in_transaction: true,
        notes: folder.to_owned(),
        flaw,
        peace: args.calm,
    };
    let queue = builder(&broker.url()).connect().await?;
    let outbox = Outbox::builder(pool(&database.url())?).open().await?;
    let crew = Crew::start(folder, start, &ROLES).await?;
    let mut stage = Stage::new(crew, vec![(broker, to_broker), (database.clone(), to_database)]);
    stage.harm(args, ROLES.len()).await?;
    // What is wrong on purpose need not come to an end.
    let patience = if flaw.is_some() { PATIENCE / 9 } else { PATIENCE };
    let rests = stage.settle(patience, async || is_done(&outbox, &queue).await).await?;
    let stuck = stage.crew.dismiss().await?;
    let seen = notes::read::<Note>(folder, stage.crew.last())?;
    let left = rows::left(&database, &outbox).await?;
    let (tally, found) = judge::judge(&seen, &left);
    let mut verdict = Verdict::of_rows(args, stage.harms, (stage.crew.kills, 0, 0, tally.committed), began.elapsed());
    verdict.find(found);
    verdict.find((!rests).then(|| "O7: it does not come to rest".to_owned()));
    verdict
        .find(stage.crew.by_themselves.iter().map(|id| format!("O7: process {id} ended by itself; its log says why")));
    verdict.find(stuck.iter().map(|id| format!("O7: process {id} did not end when it was told to")));
    tally.tell(&mut verdict, args.long.as_secs(), &stage);
    Ok(verdict)
}

/// The same for everybody.
fn builder(url: &str) -> DelayQueueBuilder {
    DelayQueue::builder(url, TOPIC).slots(SLOTS).visibility(VISIBILITY)
}

/// Once it can be reached.
async fn queue(url: &str) -> DelayQueue {
    loop {
        match builder(url).connect().await {
            Ok(queue) => return queue,
            Err(error) => eprintln!("no queue: {error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn pool(url: &str) -> anyhow::Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(3));
    Ok(options.test_before_acquire(false).connect_lazy(url)?)
}

/// Both, once the database can be reached.
async fn stores(url: &str) -> anyhow::Result<(PgPool, Outbox<sqlx::Postgres>, PostgresStore)> {
    let pool = pool(url)?;
    loop {
        let store = PostgresStore::on_pool(pool.clone()).open().await;
        let outbox = Outbox::builder(pool.clone()).open().await;
        match (store, outbox) {
            (Ok(store), Ok(outbox)) => return Ok((pool, outbox, store)),
            (Err(error), _) | (_, Err(error)) => eprintln!("no database: {error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Nothing is unconfirmed, and the broker has nothing.
async fn is_done(outbox: &Outbox<sqlx::Postgres>, queue: &DelayQueue) -> bool {
    let unconfirmed = outbox.list(idempotent::outbox::Status::Unconfirmed, 0, 1).await;
    let counts = queue.counts().await;
    unconfirmed.is_ok_and(|stubs| stubs.is_empty())
        && counts.is_ok_and(|counts| counts.ready + counts.waiting + counts.in_flight == 0)
}
