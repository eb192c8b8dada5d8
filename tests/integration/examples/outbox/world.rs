//! An outbox whose time is moved by hand, and who consumes what it sends.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotent::mq::{Consumer, KeyFrom, Message, Messages, Outbound, Publish, Source, Verdict};
use idempotent::outbox::{Outbox, Relay, Resends, Round, Status, Stub};
use idempotent::{Clock, Executor, Micros, Timer};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::sync::oneshot;

/// The outbox's time.
#[derive(Debug)]
struct Manual(AtomicU64);

impl Clock for Manual {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Micros {
        Micros(self.0.load(SeqCst))
    }

    fn sleep_until(&self, _: Instant) -> Timer {
        Box::pin(std::future::pending())
    }
}

pub(crate) struct World {
    pool: SqlitePool,
    outbox: Outbox<sqlx::Sqlite>,
    clock: Arc<Manual>,
    runs: Arc<Mutex<BTreeMap<String, u32>>>,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("orders.db")).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let clock = Arc::new(Manual(AtomicU64::new(1_750_000_000_000_000)));
        let outbox = Outbox::builder(pool.clone()).create(true).clock(clock.clone()).open().await.unwrap();
        Self { pool, outbox, clock, runs: Arc::default(), _folder: folder }
    }

    pub(crate) fn relay(&self, publisher: impl Publish) -> Relay<sqlx::Sqlite> {
        let rest = Duration::from_secs(10);
        Relay::new(&self.outbox, Arc::new(publisher)).resends(Resends::new().max_sends(1_000).backoff(rest, rest))
    }

    pub(crate) async fn put(&self, topic: &str, id: &str) {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        self.outbox.enqueue(&mut tx, &Outbound::new(topic, id, "{}").header("trace", "t")).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Whatever is unconfirmed is due again; a queue's silence is not yet long enough to mean anything.
    pub(crate) fn later(&self) {
        self.clock.0.fetch_add(3_600_000_000, SeqCst);
    }

    pub(crate) async fn stub(&self, id: &str) -> Stub {
        self.outbox.inspect(id).await.unwrap().unwrap().0
    }

    /// Consumes until all of these are confirmed, and says how often each has run so far.
    pub(crate) async fn consume<S: Source>(
        &self,
        source: S,
        executor: &Executor,
        ids: &[&str],
    ) -> BTreeMap<String, u32> {
        let counted = self.runs.clone();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
            assert_eq!(message.delivery.headers.first("trace"), Some(&b"t"[..]));
            let id = message.delivery.id.clone().unwrap();
            *counted.lock().unwrap().entry(id).or_default() += 1;
            async { Verdict::Done }
        });
        let consumer = Consumer::builder(source, "billing", executor).log(Arc::new(self.outbox.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let consuming = tokio::spawn(consumer.build(handling).unwrap().run(async { drop(stopped.await) }));
        for id in ids {
            let confirmed = async {
                while self.stub(id).await.status != Status::Confirmed {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), confirmed).await.expect("confirmed within a minute");
        }
        drop(stop);
        let counts = consuming.await.unwrap().unwrap();
        assert_eq!(counts.unsettled, 0, "{counts:?}");
        self.runs.lock().unwrap().clone()
    }
}

pub(crate) async fn round(relay: &Relay<sqlx::Sqlite>) -> Round {
    relay.round().await.unwrap()
}

/// Of these, each has run once.
pub(crate) fn once(ids: &[&str]) -> BTreeMap<String, u32> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}
