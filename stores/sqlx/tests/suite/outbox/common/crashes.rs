//! Consumers that die between any two of their steps, with the same final state.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use async_trait::async_trait;
use idempotent_core::{Executor, MemoryStore};
use idempotent_mq::{
    Consumer, DeliveryResult, HandlerResult, KeyFrom, LogError, LogErrorKind, LoggedDelivery, Message, MessageLog,
    Messages, SenderState,
};
use idempotent_sqlx::{Outbox, OutboxStatus};
use tokio::sync::watch;

use super::backend::Db;
use super::world::{World, message};
use crate::outbox::memory_queue::Line;

/// The point at which a process stops for good.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stops {
    BeforeNoting,
    Noted,
    BeforeConcluding,
    Concluded,
    Nowhere,
}

#[derive(Debug)]
struct Log {
    outbox: Outbox<Db>,
    stops: Stops,
    stopped: watch::Sender<bool>,
    /// The number of calls that fail first.
    failing: AtomicUsize,
}

impl Log {
    async fn at(&self, place: Stops) {
        if self.stops == place {
            self.stopped.send_replace(true);
            std::future::pending::<()>().await;
        }
    }

    fn fails(&self) -> Result<(), LogError> {
        let left = self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() { Err(LogError::new(LogErrorKind::Transient, "told to")) } else { Ok(()) }
    }
}

#[async_trait]
impl MessageLog for Log {
    async fn received(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, LogError> {
        self.at(Stops::BeforeNoting).await;
        self.fails()?;
        let states = self.outbox.received(receipts).await?;
        self.at(Stops::Noted).await;
        Ok(states)
    }

    async fn concluded(&self, receipt: &LoggedDelivery, how: DeliveryResult) -> Result<(), LogError> {
        self.at(Stops::BeforeConcluding).await;
        self.fails()?;
        self.outbox.concluded(receipt, how).await?;
        self.at(Stops::Concluded).await;
        Ok(())
    }
}

struct Crash {
    world: World,
    line: Line,
    executor: Executor,
    runs: Arc<AtomicU32>,
}

impl Crash {
    async fn new() -> Self {
        let world = World::new().await;
        world.put(&[message("a")]).await;
        world.round().await;
        Self { world, line: Line::new(), executor: Executor::new(MemoryStore::new()), runs: Arc::default() }
    }

    fn start(&self, stops: Stops, failing: usize) -> (Arc<Log>, tokio::task::JoinHandle<()>) {
        let (stopped, failing) = (watch::Sender::new(false), AtomicUsize::new(failing));
        let log = Arc::new(Log { outbox: self.world.outbox.clone(), stops, stopped, failing });
        let runs = self.runs.clone();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { HandlerResult::Done }
        });
        let consumer = Consumer::builder(self.line.clone(), "orders", &self.executor).log(log.clone());
        let consumer = consumer.build(handling).unwrap();
        (log, tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop).unwrap() }))
    }

    async fn ends_well(&self) {
        let settled = self.line.settled().len();
        let (_, running) = self.start(Stops::Nowhere, 0);
        self.line.deliver(&self.world.stored("a").await, 7);
        self.line.has_settled(settled + 1).await;
        running.abort();
        assert_eq!(self.line.settled().last().unwrap().1, "ack");
        assert_eq!(self.runs.load(Ordering::SeqCst), 1);
        assert_eq!((self.world.status("a").await, self.world.notes().await), (OutboxStatus::Confirmed, 0));
    }
}

#[tokio::test]
async fn killed_between_any_two_steps_the_end_is_the_same() {
    for stops in [Stops::BeforeNoting, Stops::Noted, Stops::BeforeConcluding, Stops::Concluded] {
        let crash = Crash::new().await;
        let (log, running) = crash.start(stops, 0);
        crash.line.deliver(&crash.world.stored("a").await, 7);
        log.stopped.subscribe().wait_for(|stopped| *stopped).await.unwrap();
        running.abort();
        let _ = running.await;
        assert!(crash.line.settled().is_empty(), "{stops:?}: not acknowledged, so it comes again");
        crash.ends_well().await;
    }
}

#[tokio::test]
async fn between_confirming_and_forgetting_the_note_is_removed_by_the_next_delivery() {
    let crash = Crash::new().await;
    let (log, running) = crash.start(Stops::BeforeConcluding, 0);
    crash.line.deliver(&crash.world.stored("a").await, 7);
    log.stopped.subscribe().wait_for(|stopped| *stopped).await.unwrap();
    running.abort();
    let id = crash.world.bytes("'a'");
    crash.world.sql(&format!("UPDATE outbox SET status = 1, due_at = NULL WHERE id = {id}")).await;
    assert_eq!(crash.world.notes().await, 1);
    crash.ends_well().await;
}

#[tokio::test]
async fn a_message_that_cannot_be_marked_is_not_run_and_an_unmarked_result_is_not_acknowledged() {
    let crash = Crash::new().await;
    let (_, running) = crash.start(Stops::Nowhere, 1);
    crash.line.deliver(&crash.world.stored("a").await, 7);
    crash.line.has_settled(1).await;
    assert_eq!((crash.line.settled()[0].1, crash.runs.load(Ordering::SeqCst)), ("retry", 0));
    running.abort();
    // Now what is done cannot be noted so.
    let fails = Arc::new(Failing(crash.world.outbox.clone()));
    let runs = crash.runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        runs.fetch_add(1, Ordering::SeqCst);
        async { HandlerResult::Done }
    });
    let consumer = Consumer::builder(crash.line.clone(), "orders", &crash.executor).log(fails).build(handling).unwrap();
    let running = tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop).unwrap() });
    crash.line.deliver(&crash.world.stored("a").await, 7);
    crash.line.has_settled(2).await;
    running.abort();
    assert_eq!((crash.line.settled()[1].1, crash.runs.load(Ordering::SeqCst)), ("retry", 1));
    crash.ends_well().await;
}

/// Takes every note, and none of an end.
#[derive(Debug)]
struct Failing(Outbox<Db>);

#[async_trait]
impl MessageLog for Failing {
    async fn received(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, LogError> {
        self.0.received(receipts).await
    }

    async fn concluded(&self, _: &LoggedDelivery, _: DeliveryResult) -> Result<(), LogError> {
        Err(LogError::new(LogErrorKind::Transient, "told to"))
    }
}
