//! An outbox whose time the tests move, and a consumer of what it sends.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotent::mq::{
    Consumer, ConsumerBuilder, ConsumerCounts, HandlerResult, KeyFrom, Message, Messages, OutboundMessage, Publish,
    Source,
};
use idempotent::outbox::{Outbox, OutboxRecord, OutboxStatus, Relay, RelayRound, ResendPolicy};
use idempotent::store::Timer;
use idempotent::{Clock, Executor, Timestamp};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::sync::oneshot;

/// The outbox's time.
#[derive(Debug)]
struct Manual(AtomicU64);

impl Clock for Manual {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.0.load(SeqCst))
    }

    fn sleep_until(&self, _: Instant) -> Timer {
        Box::pin(std::future::pending())
    }
}

pub(crate) struct World {
    pool: SqlitePool,
    outbox: Outbox<sqlx::Sqlite>,
    clock: Arc<Manual>,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("orders.db")).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let clock = Arc::new(Manual(AtomicU64::new(1_750_000_000_000_000)));
        let outbox = Outbox::builder(pool.clone()).create(true).clock(clock.clone()).open().await.unwrap();
        Self { pool, outbox, clock, _folder: folder }
    }

    pub(crate) fn relay(&self, publisher: impl Publish) -> Relay<sqlx::Sqlite> {
        let rest = Duration::from_secs(10);
        Relay::new(&self.outbox, Arc::new(publisher)).resends(ResendPolicy::new().max_sends(1_000).backoff(rest, rest))
    }

    pub(crate) async fn put(&self, topic: &str, id: &str) {
        self.enqueue(OutboundMessage::new(topic, id, "{}")).await;
    }

    pub(crate) async fn enqueue(&self, message: OutboundMessage) {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        self.outbox.enqueue(&mut tx, &message.header("trace", "t")).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Whatever is unconfirmed is due again; a queue's silence is not yet long enough to mean anything.
    pub(crate) fn later(&self) {
        self.clock.0.fetch_add(3_600_000_000, SeqCst);
    }

    pub(crate) async fn stub(&self, id: &str) -> OutboxRecord {
        self.outbox.inspect(id).await.unwrap().unwrap().0
    }

    /// Runs as many rounds as it takes: a broker that was just started has its queues only after a while.
    pub(crate) async fn until_sent(&self, relay: &Relay<sqlx::Sqlite>, id: &str) {
        let end = Instant::now() + Duration::from_secs(300);
        while self.stub(id).await.sent_at.is_none() {
            assert!(Instant::now() < end, "{id} is not sent: {:?}", self.stub(id).await);
            self.later();
            if round(relay).await.sent == 0 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }

    /// Consumes until all of these are confirmed, and returns how often each ran.
    pub(crate) async fn consume<S: Source>(
        &self,
        source: S,
        executor: &Executor,
        ids: &[&str],
    ) -> BTreeMap<String, u32> {
        let consumer = Consumer::builder(source, "billing", executor).log(Arc::new(self.outbox.clone()));
        consume_until(consumer, async |_| {
            for id in ids {
                if self.stub(id).await.status != OutboxStatus::Confirmed {
                    return false;
                }
            }
            true
        })
        .await
    }
}

/// Consumes until its counts are enough, and returns how often each message ran.
pub(crate) async fn consume_until<S: Source>(
    consumer: ConsumerBuilder<S>,
    enough: impl AsyncFn(ConsumerCounts) -> bool,
) -> BTreeMap<String, u32> {
    let runs: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
        assert_eq!(message.delivery.headers.first("trace"), Some(&b"t"[..]));
        let id = message.delivery.id.clone().unwrap();
        *counted.lock().unwrap().entry(id).or_default() += 1;
        async { HandlerResult::Done }
    });
    let consumer = consumer.build(handling).unwrap();
    let (counters, (stop, stopped)) = (consumer.counters(), oneshot::channel::<()>());
    let consuming = tokio::spawn(consumer.run(async { drop(stopped.await) }));
    let done = async {
        while !enough(counters.counts()).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), done).await.expect("all are done within two minutes");
    drop(stop);
    let counts = consuming.await.unwrap().unwrap();
    assert_eq!(counts.unsettled, 0, "{counts:?}");
    runs.lock().unwrap().clone()
}

pub(crate) async fn round(relay: &Relay<sqlx::Sqlite>) -> RelayRound {
    relay.round().await.unwrap()
}

/// Returns one run for each of these ids.
pub(crate) fn once(ids: &[&str]) -> BTreeMap<String, u32> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}
