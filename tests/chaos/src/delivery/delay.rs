//! The delay queue on one Redis with an append-only file. One topic has annotated handlers in a consumer. The other
//! topic has takers that receive, commit and roll back by themselves. Effects and records are written in one
//! transaction of an SQLite file.
//!
//! Findings:
//!
//! | | |
//! |---|---|
//! | Q1 | an accepted message that was not cancelled has neither taken effect nor died |
//! | Q2 | a message was delivered before its time, or before the delay of its rollback was over |
//! | Q3 | a message took effect twice, was sent by no producer, or has another body |
//! | Q4 | the dead letters are not exactly the messages whose handler always fails, each after 17 deliveries |
//! | Q5 | a message that was cancelled before its time was delivered |
//! | Q6 | the final counts are not those of an empty queue, or a hash contains data of no message |
//! | Q7 | the play did not come to an end, or a process ended by itself or not at all |
mod consumer;
mod judge;
mod note;
mod producer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::delay_queue::{DelayDeadLetters, DelayQueue, DelayQueueBuilder};
use idempotent::mq::{DeadLetters, StoredLetter};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RedisServer;
use tokio::time::Instant;

pub(super) use self::consumer::{consume, take};
use self::note::{Note, Topic};
pub(super) use self::producer::produce;
use super::phases::{Stage, unsettled};
use super::wire::{Role, Start};
use super::workers::Workers;
use super::{DeliveryFlaw, effects, notes};
use crate::args::Args;
use crate::deadline::PATIENCE;
use crate::verdict::Verdict;

const ROLES: [Role; 6] = [
    Role::DelayProducer,
    Role::DelayConsumer,
    Role::DelayTaker,
    Role::DelayConsumer,
    Role::DelayTaker,
    Role::DelayProducer,
];
/// Short, so that a run of seconds sees many of them end.
const VISIBILITY: Duration = Duration::from_millis(1_500);
const RETRIES: u32 = 16;
const SLOTS: u16 = 2;

/// Plays one run.
pub(super) async fn play(args: &Args, flaw: Option<DeliveryFlaw>, folder: &Path) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let started = tokio::task::spawn_blocking(|| RedisServer::builder().aof().start()).await;
    let server = Arc::new(started.context("Redis does not start")?);
    let proxy = Proxy::start(&server.address()).await;
    let file = folder.join("effects.db");
    let pool = effects::pool_of_new(&file).await?;
    let start = Start {
        id: 0,
        role: Role::DelayProducer,
        seed: args.seed,
        broker: proxy.url(),
        database: file.display().to_string(),
        in_transaction: true,
        notes: folder.to_owned(),
        flaw,
        peace: args.calm,
    };
    let queue = builder(&server.url(), None).connect().await?;
    let workers = Workers::start(folder, start, &ROLES)?;
    let mut stage = Stage::new(workers, vec![(server.clone(), proxy)]);
    stage.harm(args, ROLES.len()).await?;
    // What is wrong on purpose need not come to an end.
    let patience = if flaw.is_some() { PATIENCE / 12 } else { PATIENCE };
    let rests = stage.settle(patience, async || left(&queue).await).await?;
    let stuck = stage.workers.dismiss().await?;
    drop(pool);
    let seen = notes::read::<Note>(folder, stage.workers.last())?;
    let left = judge::Left {
        effects: effects::all(&file).await?,
        letters: letters(&queue).await?,
        leftovers: leftovers(&server, &queue).await?,
    };
    let (tally, found) = judge::judge(&seen, &left);
    let mut verdict =
        Verdict::of_rows(args, stage.harms, (stage.workers.kills, 0, tally.unsure, tally.sent), began.elapsed());
    verdict.find(found);
    verdict.find((!rests).then(|| format!("Q7: it does not come to rest: {:?}", left.leftovers)));
    verdict.find(
        stage.workers.by_themselves.iter().map(|id| format!("Q7: process {id} ended by itself; its log says why")),
    );
    verdict.find(stuck.iter().map(|id| format!("Q7: process {id} did not end when it was told to")));
    tally.tell(&mut verdict, args.enough(), &stage);
    Ok(verdict)
}

/// The same for everybody.
fn builder(url: &str, flaw: Option<DeliveryFlaw>) -> DelayQueueBuilder {
    let builder = DelayQueue::builder(url, Topic::Work.name()).slots(SLOTS).visibility(VISIBILITY);
    builder.max_retries(RETRIES).edit_scripts(move |text| flawed(text, flaw))
}

/// A script that is wrong on purpose.
fn flawed(text: &str, flaw: Option<DeliveryFlaw>) -> String {
    let (from, to) = match flaw {
        Some(DeliveryFlaw::TakesEarly) => {
            ("local passed = '(' .. text(now)\nlocal died", "local passed = '(' .. text(now + 100000)\nlocal died")
        }
        Some(DeliveryFlaw::ResetsCounter) => ("= s[2] + 1, s[3] + 1, ARGV[8]", "= s[2] + 1, 0, ARGV[8]"),
        Some(DeliveryFlaw::LosesOnRollback) => {
            ("local at = now + delay - 1", "do call('ZREM', held, m) return 1 end local at = now + delay - 1")
        }
        Some(DeliveryFlaw::CancelsNothing) => ("local said = 1", "do return 1 end local said = 1"),
        Some(DeliveryFlaw::KeepsHeld) => {
            ("'ZRANGEBYSCORE', held, '-inf', passed", "'ZRANGEBYSCORE', held, '-inf', '-inf'")
        }
        Some(DeliveryFlaw::BuriesNothing) => ("call('ZADD', dead, text(now), m)", ""),
        _ => return text.to_owned(),
    };
    text.replace(from, to)
}

/// Both topics, once the server can be reached.
async fn topics(url: &str, flaw: Option<DeliveryFlaw>) -> anyhow::Result<[DelayQueue; 2]> {
    loop {
        match builder(url, flaw).connect().await {
            Ok(work) => {
                let bare = work.for_topic(Topic::Bare.name())?;
                return Ok([work, bare]);
            }
            Err(error) => eprintln!("no queue: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the number of messages that are ready, waiting or in flight.
async fn left(queue: &DelayQueue) -> Option<u64> {
    let mut left = 0;
    for topic in Topic::ALL {
        left += unsettled(&queue.for_topic(topic.name()).ok()?).await?;
    }
    Some(left)
}

/// Both topics' dead letters: whose, and after how many attempts.
async fn letters(queue: &DelayQueue) -> anyhow::Result<Vec<judge::Letter>> {
    let mut all = Vec::new();
    for topic in Topic::ALL {
        let mut letters = DelayDeadLetters::new(&queue.for_topic(topic.name())?);
        while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await? {
            let attempts = letter.context("a dead letter says nothing of itself")?.attempts;
            let id = delivery.id.context("a dead letter without an id")?;
            all.push(judge::Letter { topic, id, attempts, body: delivery.body });
        }
    }
    Ok(all)
}

/// Returns the contents of each topic's keys except dead letters, which must be empty.
async fn leftovers(server: &RedisServer, queue: &DelayQueue) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for topic in Topic::ALL {
        let counts = queue.for_topic(topic.name())?.counts().await?;
        let size = |command: &str, part: &str| -> u64 {
            let key = |slot| format!("idempotent:delay:{{{}:{slot}}}:{part}", topic.name());
            (0..SLOTS)
                .map(|slot| server.command(&[command, &key(slot)]).integer().unwrap_or_default().unsigned_abs())
                .sum()
        };
        let of = [
            ("ready", counts.ready),
            ("waiting", counts.waiting),
            ("in flight", counts.in_flight),
            ("dead, and not counted", size("ZCARD", "dead").abs_diff(counts.dead)),
            ("bodies without a message", size("HLEN", "msg").abs_diff(counts.dead)),
            ("states without a message", size("HLEN", "state").abs_diff(counts.dead)),
            ("letters without a message", size("HLEN", "letter").abs_diff(counts.dead)),
            ("names without a message", size("HLEN", "ids")),
        ];
        let some = of.iter().filter(|(_, count)| *count > 0);
        found.extend(some.map(|(what, count)| format!("{count} {what} in {}", topic.name())));
    }
    Ok(found)
}
