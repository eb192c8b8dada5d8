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
use idempotent_harness::servers::RedisServer;

pub(super) use self::consumer::{consume, take};
use self::note::Topic;
pub(super) use self::producer::produce;
use super::phases::{self, unsettled};
use super::wire::{Role, Start};
use super::{DeliveryFlaw, effects};
use crate::args::Args;
use crate::deadline::connected;
use crate::server::{self, Server};
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
    let (server, proxy) = server::start(|| RedisServer::builder().aof().start()).await?;
    let server = Arc::new(server);
    let file = folder.join("effects.db");
    let pool = effects::pool_of_new(&file).await?;
    let start = Start::new(args, flaw, proxy.url(), file.display().to_string());
    let queue = builder(&server.url(), None).connect().await?;
    let servers: Vec<(Arc<dyn Server>, _)> = vec![(server.clone(), proxy)];
    let played = phases::play(args, folder, (start, &ROLES), servers, 12, async || left(&queue).await).await?;
    drop(pool);
    let left = judge::Left {
        effects: effects::all(&file).await?,
        letters: letters(&queue).await?,
        leftovers: leftovers(&server, &queue).await?,
    };
    let (tally, found) = judge::judge(&played.notes, &left);
    let mut verdict = played.verdict(args, (tally.unsure, tally.sent), found, "Q7");
    tally.tell(&mut verdict, args.enough(), &played.stage);
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
    let work = connected(|| builder(url, flaw).connect()).await;
    let bare = work.for_topic(Topic::Bare.name())?;
    Ok([work, bare])
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
