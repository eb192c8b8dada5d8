//! An outbox on SQLite, its relay and its consumer on a real RocketMQ: by its places, and without its broker.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotent::mq::{Consumer, KeyFrom, Message, Messages, Outbound, Verdict};
use idempotent::outbox::{Outbox, Relay, Resends, Round, Status, Stub};
use idempotent::rocketmq::{Publisher, RocketSource};
use idempotent::{Clock, Executor, MemoryStore, Micros, Timer};
use idempotent_testkit::servers::RocketServer;
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

/// For what should take a moment, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(120);

struct World {
    server: RocketServer,
    pool: SqlitePool,
    outbox: Outbox<sqlx::Sqlite>,
    relay: Relay<sqlx::Sqlite>,
    clock: Arc<Manual>,
    _folder: tempfile::TempDir,
}

impl World {
    /// With a topic `payments` of one queue.
    async fn new() -> Self {
        let (server, folder) = (RocketServer::start(), tempfile::tempdir().unwrap());
        let options = SqliteConnectOptions::new().filename(folder.path().join("orders.db")).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let clock = Arc::new(Manual(AtomicU64::new(1_750_000_000_000_000)));
        let outbox = Outbox::builder(pool.clone()).create(true).clock(clock.clone()).open().await.unwrap();
        let publisher = Publisher::builder(server.name_server()).give_up_after(Duration::from_secs(5));
        let relay = Relay::new(&outbox, Arc::new(publisher.build().unwrap()));
        let relay =
            relay.resends(Resends::new().max_sends(100).backoff(Duration::from_secs(10), Duration::from_secs(10)));
        let world = Self { server, pool, outbox, relay, clock, _folder: folder };
        world.source().declare(1).await.unwrap();
        world
    }

    fn source(&self) -> RocketSource {
        RocketSource::builder(self.server.name_server(), "payments", "billing").build().unwrap()
    }

    async fn put(&self, id: &str) {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let message = Outbound::new("payments", id, "{}").header("trace", "t").aggregate("account");
        self.outbox.enqueue(&mut tx, &message).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn round(&self) -> Round {
        self.relay.round().await.unwrap()
    }

    /// An hour: whatever is unconfirmed is due again.
    fn later(&self) {
        self.clock.0.fetch_add(3_600_000_000, SeqCst);
    }

    async fn stub(&self, id: &str) -> Stub {
        self.outbox.inspect(id).await.unwrap().unwrap().0
    }

    async fn until_sent(&self, id: &str) {
        let end = Instant::now() + LIMIT;
        while self.stub(id).await.sent_at.is_none() {
            assert!(Instant::now() < end, "{id} is not sent: {:?}", self.stub(id).await);
            self.later();
            self.round().await;
        }
    }

    /// Consumes until these are confirmed, or without the outbox as its log until as many are done, and says how often each ran.
    async fn consume(&self, executor: &Executor, with_log: bool, ids: &[&str]) -> BTreeMap<String, u32> {
        let runs: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
        let counted = runs.clone();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
            let id = message.delivery.id.clone().unwrap();
            *counted.lock().unwrap().entry(id).or_default() += 1;
            async { Verdict::Done }
        });
        let mut consumer = Consumer::builder(self.source(), "billing", executor);
        if with_log {
            consumer = consumer.log(Arc::new(self.outbox.clone()));
        }
        let consumer = consumer.build(handling).unwrap();
        let (counters, (stop, stopped)) = (consumer.counters(), oneshot::channel::<()>());
        let consuming = tokio::spawn(consumer.run(async { drop(stopped.await) }));
        let done = async {
            while !self.is_done(with_log, ids, counters.counts().acked).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LIMIT, done).await.expect("all are done within two minutes");
        drop(stop);
        let counts = consuming.await.unwrap().unwrap();
        assert_eq!(counts.unsettled, 0, "{counts:?}");
        runs.lock().unwrap().clone()
    }

    async fn is_done(&self, with_log: bool, ids: &[&str], acked: u64) -> bool {
        if !with_log {
            return acked >= ids.len() as u64;
        }
        for id in ids {
            if self.stub(id).await.status != Status::Confirmed {
                return false;
            }
        }
        true
    }
}

fn once(ids: &[&str]) -> BTreeMap<String, u32> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_10_a_message_is_lost_once_a_consumer_has_passed_its_place_and_no_sooner() {
    let (world, executor) = (World::new().await, Executor::new(MemoryStore::new()));
    world.put("lost").await;
    assert_eq!(world.round().await.sent, 1);
    // To the outbox it is as if the broker had lost it: whoever takes it tells nobody.
    let elsewhere = Executor::new(MemoryStore::new());
    assert_eq!(world.consume(&elsewhere, false, &["lost"]).await, once(&["lost"]));
    world.later();
    assert_eq!(world.round().await.sent, 0, "it may wait in its queue: nobody has passed it");
    world.put("next").await;
    world.until_sent("next").await;
    assert_eq!(world.consume(&executor, true, &["next"]).await, once(&["next"]));
    let lost = world.stub("lost").await;
    assert_eq!((lost.status, lost.sends), (Status::Unconfirmed, 1));
    world.later();
    assert_eq!(world.round().await.sent, 1, "the next one was seen");
    assert!(world.stub("lost").await.place > lost.place);
    assert_eq!(world.consume(&executor, true, &["lost"]).await, once(&["lost"]));
    assert_eq!(world.stub("lost").await.sends, 2);
    world.later();
    assert_eq!(world.round().await.looked_at, 0, "nothing is left to do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_without_its_broker_an_outbox_uses_nothing_up_and_what_is_killed_between_is_sent_again_and_done_once() {
    let (world, executor) = (World::new().await, Executor::new(MemoryStore::new()));
    world.put("first").await;
    world.until_sent("first").await;
    assert_eq!(world.consume(&executor, true, &["first"]).await, once(&["first"]));
    world.server.kill();
    // Seen by the publisher's client, whose connection it was.
    world.put("second").await;
    world.round().await;
    let sends = world.stub("second").await.sends;
    world.put("third").await;
    for _ in 0..3 {
        world.later();
        assert_eq!(world.round().await.sent, 0);
    }
    assert_eq!((world.stub("second").await.sends, world.stub("third").await.sends), (sends, 0));
    world.server.restart();
    for id in ["second", "third"] {
        world.until_sent(id).await;
    }
    // It takes the message, perhaps, and says nothing any more.
    world.server.pause();
    world.put("unknown").await;
    assert_eq!(world.round().await.failed, 1);
    let unknown = world.stub("unknown").await;
    assert_eq!((unknown.status, unknown.sends, unknown.sent_at), (Status::Unconfirmed, 1, None), "{unknown:?}");
    world.server.resume();
    world.until_sent("unknown").await;
    let ids = ["second", "third", "unknown"];
    assert_eq!(world.consume(&executor, true, &ids).await, once(&ids));
}
