//! Consumed and void messages are acknowledged without a run, also if the store has lost their keys. No other message is.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore, Policy};
use idempotent_mq::{
    Consumer, ConsumerCounters, Delivery, DeliveryResult, HandlerResult, KeyFrom, LoggedDelivery, Message, MessageLog,
    Messages, OutboundMessage, Position, SenderState,
};
use idempotent_sqlx::OutboxStatus;
use tokio::task::JoinHandle;

use super::world::{World, message};
use crate::outbox::memory_queue::Line;

/// A consumer with a store of its own, which is empty: whatever it knows of earlier runs, it has from the log.
struct Process {
    line: Line,
    runs: Arc<AtomicU32>,
    counters: ConsumerCounters,
    task: JoinHandle<()>,
}

impl Process {
    fn start(world: &World, group: &str) -> Self {
        Self::started(world, group, true, |_| HandlerResult::Done)
    }

    /// `ends`: the result of a run, by its number.
    fn started(world: &World, group: &str, skips: bool, ends: fn(u32) -> HandlerResult) -> Self {
        let (line, runs) = (Line::new(), Arc::new(AtomicU32::new(0)));
        let counted = runs.clone();
        let policy = Policy::new().max_retries(0);
        let handling = Messages::raw().keyed(KeyFrom::message_id()).policy(policy).run(move |_: Message<()>| {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move { ends(run) }
        });
        let consumer = Consumer::builder(line.clone(), group, Executor::new(MemoryStore::new()))
            .log(Arc::new(world.outbox.clone()))
            .skip_consumed(skips)
            .build(handling)
            .unwrap();
        let counters = consumer.counters();
        let task = tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop).unwrap() });
        Self { line, runs, counters, task }
    }

    /// Delivers a message, and returns how it was settled.
    async fn take(&self, message: &OutboundMessage) -> &'static str {
        let settled = self.line.settled().len();
        self.line.deliver(message, settled as u64);
        self.settles(settled + 1).await
    }

    async fn settles(&self, count: usize) -> &'static str {
        self.line.has_settled(count).await;
        self.line.settled().last().unwrap().1
    }

    /// Runs, and deliveries that were skipped.
    fn counts(&self) -> (u32, u64) {
        (self.runs.load(Ordering::SeqCst), self.counters.counts().skipped)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    /// Returns the number of consumption records, one for each message and consumer.
    async fn consumers(&self) -> i64 {
        self.rows("outbox_log WHERE kind = 2").await
    }
}

#[tokio::test]
async fn a_consumed_message_is_skipped_by_a_consumer_whose_store_does_not_know_its_key() {
    let world = World::new().await;
    world.put(&[message("a"), message("b")]).await;
    let [a, b] = [world.stored("a").await, world.stored("b").await];
    let before = Process::start(&world, "billing");
    assert_eq!((before.take(&a).await, before.counts()), ("ack", (1, 0)));
    assert_eq!(world.consumers().await, 1);
    let after = Process::start(&world, "billing");
    assert_eq!((after.take(&a).await, after.counts()), ("ack", (0, 1)));
    assert_eq!((after.take(&b).await, after.counts()), ("ack", (1, 1)), "a message that is not consumed runs");
    assert_eq!((world.status("a").await, world.notes().await), (OutboxStatus::Confirmed, 0));
    assert_eq!((world.status("b").await, world.consumers().await), (OutboxStatus::Confirmed, 2));
}

#[tokio::test]
async fn a_void_message_that_is_already_with_the_broker_is_skipped_and_stays_void() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    assert_eq!(world.round().await.sent, 1);
    let with_the_broker = world.stored("a").await;
    // A consumer that died has left its note.
    world.outbox.received(&[world.receipt("a", 99).await]).await.unwrap();
    world.void("a").await;
    let process = Process::start(&world, "billing");
    assert_eq!((process.take(&with_the_broker).await, process.counts()), ("ack", (0, 1)));
    assert_eq!((world.status("a").await, world.notes().await, world.consumers().await), (OutboxStatus::Void, 0, 0));
    assert_eq!((process.take(&with_the_broker).await, process.counts()), ("ack", (0, 2)));
    assert_eq!(world.status("a").await, OutboxStatus::Void);
}

#[tokio::test]
async fn no_group_skips_a_message_that_only_another_group_has_consumed() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let a = world.stored("a").await;
    let billing = Process::start(&world, "billing");
    assert_eq!((billing.take(&a).await, billing.counts()), ("ack", (1, 0)));
    assert_eq!(world.status("a").await, OutboxStatus::Confirmed);
    let shipping = Process::start(&world, "shipping");
    assert_eq!((shipping.take(&a).await, shipping.counts()), ("ack", (1, 0)), "the confirmation is another group's");
    // From now on each of them has consumed it.
    for group in ["billing", "shipping"] {
        let again = Process::start(&world, group);
        assert_eq!((again.take(&a).await, again.counts()), ("ack", (0, 1)), "{group}");
    }
}

#[tokio::test]
async fn two_queues_with_one_group_name_are_two_consumers() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let mut a = world.stored("a").await;
    let process = Process::start(&world, "billing");
    process.take(&a).await;
    a.topic = "a copy of orders".to_owned();
    let other = Process::start(&world, "billing");
    assert_eq!((other.take(&a).await, other.counts()), ("ack", (1, 0)));
}

#[tokio::test]
async fn a_dead_letter_that_is_redriven_runs_and_is_skipped_only_after_it_has_succeeded() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let a = world.stored("a").await;
    let never = |_| HandlerResult::Never { reason: "no such account".into() };
    let process = Process::started(&world, "billing", true, never);
    assert_eq!(process.take(&a).await, "dead letter");
    assert_eq!((world.status("a").await, world.consumers().await), (OutboxStatus::Dead, 0));
    let process = Process::start(&world, "billing");
    assert_eq!((process.take(&a).await, process.counts()), ("ack", (1, 0)));
    assert_eq!(world.status("a").await, OutboxStatus::Confirmed);
    let process = Process::start(&world, "billing");
    assert_eq!((process.take(&a).await, process.counts()), ("ack", (0, 1)));
}

/// The relay had sent the message twice: the first copy was too late.
#[tokio::test]
async fn an_expired_copy_confirms_its_message_but_a_copy_that_is_not_expired_runs() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let a = world.stored("a").await;
    let process = Process::start(&world, "billing");
    let mut expired = Delivery::new(Position::of("orders").partition(0).offset(7_u64), Vec::new()).id("a");
    expired.headers = a.headers.clone();
    expired.expires_at = Some(idempotent_core::Timestamp(1));
    process.line.push(expired);
    assert_eq!(process.settles(1).await, "ack");
    assert_eq!((world.status("a").await, world.notes().await), (OutboxStatus::Confirmed, 0), "no relay resends it");
    assert_eq!((process.counts(), process.counters.counts().expired, world.consumers().await), ((0, 0), 1, 0));
    assert_eq!((process.take(&a).await, process.counts()), ("ack", (1, 0)));
}

#[tokio::test]
async fn a_failed_or_deferred_run_does_not_count_as_consumed() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    for how in [DeliveryResult::Failed, DeliveryResult::Deferred, DeliveryResult::Void] {
        let receipt = world.receipt("a", 1).await.consumer("billing");
        world.outbox.concluded(&receipt, how).await.unwrap();
        assert_eq!((world.consumers().await, world.status("a").await), (0, OutboxStatus::Unconfirmed), "{how:?}");
    }
}

#[tokio::test]
async fn a_consumer_that_does_not_skip_runs_consumed_and_void_messages_and_writes_no_row() {
    let world = World::new().await;
    world.put(&[message("a"), message("void")]).await;
    world.void("void").await;
    for _ in 0..2 {
        let process = Process::started(&world, "billing", false, |_| HandlerResult::Done);
        assert_eq!(process.take(&world.stored("a").await).await, "ack");
        assert_eq!(process.take(&world.stored("void").await).await, "ack");
        assert_eq!((process.counts(), world.consumers().await), ((2, 0), 0));
    }
    assert_eq!(world.status("void").await, OutboxStatus::Void, "a consumer does not confirm a void message");
}

/// An id can be written again after its message was purged. The rows of the first one may still be there.
#[tokio::test]
async fn a_message_with_the_id_of_a_purged_one_is_another_message() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let billing = Process::start(&world, "billing");
    billing.take(&world.stored("a").await).await;
    let id = world.bytes("'a'");
    world.sql(&format!("DELETE FROM outbox WHERE id = {id}")).await;
    world.put(&[message("a")]).await;
    let second = world.stored("a").await;
    let shipping = Process::start(&world, "shipping");
    shipping.take(&second).await;
    assert_eq!((world.status("a").await, world.consumers().await), (OutboxStatus::Confirmed, 2));
    let billing = Process::start(&world, "billing");
    assert_eq!((billing.take(&second).await, billing.counts()), ("ack", (1, 0)));
}

#[tokio::test]
async fn a_purge_removes_the_rows_of_consumers_that_are_old_enough() {
    let world = World::new().await;
    world.put(&[message("old"), message("new")]).await;
    let process = Process::start(&world, "billing");
    process.take(&world.stored("old").await).await;
    world.pass(100);
    process.take(&world.stored("new").await).await;
    assert_eq!(world.consumers().await, 2);
    assert_eq!(world.outbox.purge(Duration::from_secs(100), 9).await.unwrap(), 1);
    assert_eq!(world.consumers().await, 1);
    let again = Process::start(&world, "billing");
    assert_eq!((again.take(&world.stored("new").await).await, again.counts()), ("ack", (0, 1)));
}

#[tokio::test]
async fn many_messages_at_once_are_kept_separate() {
    let world = World::new().await;
    let ids: Vec<_> = (0..30).map(|n| format!("m{n:02}")).collect();
    world.put(&ids.iter().map(|id| message(id)).collect::<Vec<_>>()).await;
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let receipts: Vec<_> = world.receipts(&ids).await.into_iter().map(|one| one.consumer("billing")).collect();
    let consumed = |at: usize| at.is_multiple_of(3);
    for (at, receipt) in receipts.iter().enumerate() {
        let by = if consumed(at) { "billing" } else { "shipping" };
        let receipt: LoggedDelivery = receipt.clone().consumer(by);
        if at % 3 != 2 {
            world.outbox.concluded(&receipt, DeliveryResult::Done).await.unwrap();
        }
    }
    // Twice in one receive, too.
    let asked = [&receipts[..], &receipts[..]].concat();
    let expected = |at| match at % 3 {
        0 => SenderState::Consumed,
        1 => SenderState::Confirmed,
        _ => SenderState::Unconfirmed,
    };
    let expected: Vec<_> = (0..30).chain(0..30).map(expected).collect();
    assert_eq!(world.outbox.received(&asked).await.unwrap(), expected);
}
