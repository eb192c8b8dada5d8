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
use idempotent::{Executor, RedisStore, SqliteStore};
use idempotent_harness::servers::RedisServer;
use serde::{Deserialize, Serialize};

pub(super) use self::consumer::consume;
pub(super) use self::producer::produce;
use super::phases::{self, unsettled};
use super::process::{Point, ProcessContext};
use super::wire::{Role, Start};
use super::{DeliveryFlaw, consumers, effects};
use crate::args::{Args, Topology};
use crate::deadline::connected;
use crate::server::{self, Server};
use crate::verdict::Verdict;

const ROLES: [Role; 5] =
    [Role::ChainProducer, Role::ChainConsumer, Role::ChainConsumer, Role::ChainConsumer, Role::ChainConsumer];
const TOPIC: &str = "chains";
const VISIBILITY: Duration = Duration::from_millis(1_500);
const SLOTS: u16 = 2;
/// Links of a chain.
const LENGTH: u64 = 8;

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
    let (broker, proxy) = server::start(|| RedisServer::builder().aof().start()).await?;
    let file = folder.join("effects.db");
    let pool = effects::pool_of_new(&file).await?;
    let in_transaction = *store == Topology::File;
    let start = Start { in_transaction, ..Start::new(args, flaw, proxy.url(), file.display().to_string()) };
    let queue = builder(&broker.url()).connect().await?;
    let servers: Vec<(Arc<dyn Server>, _)> = vec![(Arc::new(broker), proxy)];
    let played = phases::play(args, folder, (start, &ROLES), servers, 6, async || unsettled(&queue).await).await?;
    drop(pool);
    let left = judge::Left { in_transaction, effects: effects::all(&file).await?, dead: letters(&queue).await? };
    let (tally, found) = judge::judge(&played.notes, &left);
    let mut verdict = played.verdict(args, (0, tally.links), found, "R7");
    tally.tell(&mut verdict, args.enough(), &played.stage);
    Ok(verdict)
}

/// The same for everybody.
fn builder(url: &str) -> DelayQueueBuilder {
    // A link that waits for its turn is delivered again and again.
    DelayQueue::builder(url, TOPIC).slots(SLOTS).visibility(VISIBILITY).max_retries(1_000)
}

/// Once it can be reached.
async fn queue(url: &str) -> DelayQueue {
    connected(|| builder(url).connect()).await
}

/// Over where the records are, once that can be reached.
async fn executor(context: &ProcessContext) -> anyhow::Result<Executor> {
    if context.start.in_transaction {
        return consumers::executor(SqliteStore::open(&context.start.database).await?);
    }
    consumers::executor(connected(|| RedisStore::connect(&context.start.broker)).await)
}

async fn letters(queue: &DelayQueue) -> anyhow::Result<Vec<Link>> {
    let mut letters = DelayDeadLetters::new(queue);
    let mut all = Vec::new();
    while let Some(StoredLetter { delivery, .. }) = letters.next().await? {
        all.push(serde_json::from_slice(&delivery.body).context("a dead letter is not what was sent")?);
    }
    Ok(all)
}
