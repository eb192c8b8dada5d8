//! Chains of messages. In every second chain, the links are numbers of a stream that the producer registers before it
//! sends them (`sequence`). In the other chains, each link runs `after` the previous one. Processes die, and the
//! broker (the delay queue on Redis) delivers in any order. One link of some chains always fails, and is skipped after
//! a while. Records are on Redis, or in an SQLite file in one transaction with the effects.
//!
//! Findings:
//!
//! | | |
//! |---|---|
//! | R1 | an accepted link has no effect |
//! | R2 | a link took effect before its predecessor, which had been deferred within its patience |
//! | R3 | a link took effect twice although effect and record are one transaction, was sent by no producer, or always
//! fails |
//! | R4 | the dead letters are not the links that always fail |
//! | R5 | no other chain continued while one was held |
//! | R7 | the play did not come to an end, or a process ended by itself or not at all |
mod consumer;
mod judge;
mod producer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::delay_queue::{DelayDeadLetters, DelayQueue, DelayQueueBuilder};
use idempotent::mq::{DeadLetters, StoredLetter};
use idempotent::{Executor, Policy, RedisStore, Scene, SqliteStore};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RedisServer;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

pub(super) use self::consumer::consume;
pub(super) use self::producer::produce;
use super::phases::{Stage, unsettled};
use super::process::{Point, ProcessContext};
use super::wire::{Role, Start};
use super::workers::Workers;
use super::{DeliveryFlaw, effects, notes};
use crate::args::{Args, Topology};
use crate::deadline::PATIENCE;
use crate::verdict::Verdict;

const ROLES: [Role; 5] =
    [Role::ChainProducer, Role::ChainConsumer, Role::ChainConsumer, Role::ChainConsumer, Role::ChainConsumer];
const TOPIC: &str = "chains";
const VISIBILITY: Duration = Duration::from_millis(1_500);
const SLOTS: u16 = 2;
/// Links of a chain.
const LENGTH: u64 = 8;
const LEASE: Duration = Duration::from_secs(1);
/// The number of retries of a failing handler. Killed runs count, too.
const RETRIES: u32 = 12;

/// A link.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
struct Link {
    chain: u64,
    /// The number of the link, from 1.
    number: u64,
    /// True if the link is a number of a stream, and false if it names its predecessor.
    numbered: bool,
    /// Its handler always fails.
    poison: bool,
}

impl Link {
    fn name(self) -> String {
        format!("{}/{}", self.chain, self.number)
    }
}

/// A note of a process. Times are those of the machine, in µs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    /// All numbers of this chain are registered.
    Registered {
        chain: u64,
    },
    /// The producer is about to send the link.
    Intends(Link),
    /// The broker has it.
    Kept(Link),
    /// A delivery of it; its turn may not have come.
    Came {
        link: Link,
        at: u64,
    },
    /// The store deferred the delivery, since its turn had not come.
    Deferred {
        link: Link,
        came: u64,
        at: u64,
    },
    /// Its handler begins.
    Runs {
        link: Link,
        at: u64,
    },
    Dies(Point),
}

/// Plays one run, with the records there.
pub(super) async fn play(
    args: &Args,
    store: &Topology,
    flaw: Option<DeliveryFlaw>,
    folder: &Path,
) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let broker = tokio::task::spawn_blocking(|| RedisServer::builder().aof().start());
    let broker = Arc::new(broker.await.context("Redis does not start")?);
    let proxy = Proxy::start(&broker.address()).await;
    let file = folder.join("effects.db");
    let pool = effects::pool_of_new(&file).await?;
    let start = Start {
        id: 0,
        role: Role::ChainProducer,
        seed: args.seed,
        broker: proxy.url(),
        database: file.display().to_string(),
        in_transaction: *store == Topology::File,
        notes: folder.to_owned(),
        flaw,
        peace: args.calm,
    };
    let in_transaction = start.in_transaction;
    let queue = builder(&broker.url()).connect().await?;
    let workers = Workers::start(folder, start, &ROLES)?;
    let mut stage = Stage::new(workers, vec![(broker, proxy)]);
    stage.harm(args, ROLES.len()).await?;
    // What is wrong on purpose need not come to an end.
    let patience = if flaw.is_some() { PATIENCE / 6 } else { PATIENCE };
    let rests = stage.settle(patience, async || unsettled(&queue).await).await?;
    let stuck = stage.workers.dismiss().await?;
    drop(pool);
    let seen = notes::read::<Note>(folder, stage.workers.last())?;
    let left = judge::Left { in_transaction, effects: effects::all(&file).await?, dead: letters(&queue).await? };
    let (tally, found) = judge::judge(&seen, &left);
    let mut verdict = Verdict::of_rows(args, stage.harms, (stage.workers.kills, 0, 0, tally.links), began.elapsed());
    verdict.find(found);
    verdict.find((!rests).then(|| "R7: it does not come to rest".to_owned()));
    verdict.find(
        stage.workers.by_themselves.iter().map(|id| format!("R7: process {id} ended by itself; its log says why")),
    );
    verdict.find(stuck.iter().map(|id| format!("R7: process {id} did not end when it was told to")));
    tally.tell(&mut verdict, args.enough(), &stage);
    Ok(verdict)
}

/// The same for everybody.
fn builder(url: &str) -> DelayQueueBuilder {
    // A link that waits for its turn is delivered again and again.
    DelayQueue::builder(url, TOPIC).slots(SLOTS).visibility(VISIBILITY).max_retries(1_000)
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

/// Over where the records are, once that can be reached.
async fn executor(context: &ProcessContext) -> anyhow::Result<Executor> {
    let policy = Policy::new().max_retries(RETRIES).lease(LEASE);
    let policy = policy.retry_delay(Duration::from_millis(10)).retry_delay_max(Duration::from_millis(60));
    let policy = policy.in_flight_delay(Duration::from_millis(40)).in_flight_delay_max(Duration::from_millis(200));
    if context.start.in_transaction {
        let store = SqliteStore::open(&context.start.database).await?;
        return Ok(Executor::builder(store).policy(Scene::Mq, policy).build()?);
    }
    loop {
        match RedisStore::connect(&context.start.broker).await {
            Ok(store) => return Ok(Executor::builder(store).policy(Scene::Mq, policy).build()?),
            Err(error) => eprintln!("no store: {error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn letters(queue: &DelayQueue) -> anyhow::Result<Vec<Link>> {
    let mut letters = DelayDeadLetters::new(queue);
    let mut all = Vec::new();
    while let Some(StoredLetter { delivery, .. }) = letters.next().await? {
        all.push(serde_json::from_slice(&delivery.body).context("a dead letter is not what was sent")?);
    }
    Ok(all)
}
