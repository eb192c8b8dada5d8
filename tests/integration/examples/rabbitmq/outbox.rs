//! An outbox on SQLite, its relay and its consumer on a real broker that takes nothing, says nothing, and dies.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotent::mq::{Consumer, KeyFrom, Message, Messages, Outbound, Verdict};
use idempotent::outbox::{Outbox, Relay, Resends, Round, Status, Stub};
use idempotent::rabbitmq::{Publisher, Queue, RabbitSource};
use idempotent::{Clock, Executor, MemoryStore, Micros, Timer};
use idempotent_testkit::servers::RabbitServer;
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

struct World {
    server: RabbitServer,
    pool: SqlitePool,
    outbox: Outbox<sqlx::Sqlite>,
    relay: Relay<sqlx::Sqlite>,
    clock: Arc<Manual>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let (server, folder) = (RabbitServer::start(), tempfile::tempdir().unwrap());
        let options = SqliteConnectOptions::new().filename(folder.path().join("orders.db")).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let clock = Arc::new(Manual(AtomicU64::new(1_750_000_000_000_000)));
        let outbox = Outbox::builder(pool.clone()).create(true).clock(clock.clone()).open().await.unwrap();
        let publisher = Publisher::builder(&server.url());
        let publisher = publisher.confirm_within(Duration::from_secs(3)).give_up_after(Duration::from_secs(3));
        let relay = Relay::new(&outbox, Arc::new(publisher.build().unwrap()));
        let relay =
            relay.resends(Resends::new().max_sends(1_000).backoff(Duration::from_secs(10), Duration::from_secs(10)));
        Self { server, pool, outbox, relay, clock, _folder: folder }
    }

    async fn declare(&self, queue: &str) {
        self.source(queue).declare().await.unwrap();
    }

    fn source(&self, queue: &str) -> RabbitSource {
        RabbitSource::builder(&self.server.url(), Queue::classic(queue)).build().unwrap()
    }

    async fn put(&self, topic: &str, id: &str) {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        self.outbox.enqueue(&mut tx, &Outbound::new(topic, id, "{}").header("trace", "t")).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn round(&self) -> Round {
        self.relay.round().await.unwrap()
    }

    /// Whatever is unconfirmed is due again.
    fn later(&self) {
        self.clock.0.fetch_add(3_600_000_000, SeqCst);
    }

    async fn stub(&self, id: &str) -> Stub {
        self.outbox.inspect(id).await.unwrap().unwrap().0
    }

    /// As many rounds as it takes: a broker that was just started has its queues only after a while.
    async fn until_sent(&self, id: &str) {
        let end = Instant::now() + Duration::from_secs(300);
        while self.stub(id).await.sent_at.is_none() {
            assert!(Instant::now() < end, "{id} is not sent: {:?}", self.stub(id).await);
            self.later();
            if self.round().await.sent == 0 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }

    /// Consumes the queue until all of these are confirmed, and says how often each ran.
    async fn consume(&self, queue: &str, ids: &[&str]) -> BTreeMap<String, u32> {
        let runs: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
        let counted = runs.clone();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
            let id = message.delivery.id.clone().unwrap();
            *counted.lock().unwrap().entry(id).or_default() += 1;
            async { Verdict::Done }
        });
        let consumer = Consumer::builder(self.source(queue), "billing", Executor::new(MemoryStore::new()));
        let consumer = consumer.log(Arc::new(self.outbox.clone())).build(handling).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let consuming = tokio::spawn(consumer.run(async { drop(stopped.await) }));
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
        runs.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_what_nobody_takes_stays_unconfirmed_and_goes_out_once_somebody_does() {
    let world = World::new().await;
    world.declare("there").await;
    world.put("nowhere", "early").await;
    world.put("there", "usual").await;
    world.round().await;
    world.until_sent("usual").await;
    let early = world.stub("early").await;
    assert_eq!((early.status, early.sent_at), (Status::Unconfirmed, None), "{early:?}");
    assert!(early.failures > 0 && early.last_error.as_ref().unwrap().contains("nothing is bound"), "{early:?}");
    world.declare("nowhere").await;
    world.until_sent("early").await;
    assert_eq!(world.consume("nowhere", &["early"]).await, BTreeMap::from([("early".to_owned(), 1)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_what_was_not_confirmed_is_sent_again_under_its_id_and_has_its_effect_once() {
    let world = World::new().await;
    world.declare("payments").await;
    world.put("payments", "first").await;
    world.until_sent("first").await;
    // It takes the message, perhaps, and says nothing any more.
    world.server.pause();
    world.put("payments", "unknown").await;
    assert_eq!(world.round().await.failed, 1);
    let unknown = world.stub("unknown").await;
    assert_eq!((unknown.status, unknown.sends, unknown.sent_at), (Status::Unconfirmed, 1, None), "{unknown:?}");
    world.server.resume();
    world.until_sent("unknown").await;
    // Killed between a sending and its confirm; the queue itself is not what is put to the test.
    world.server.sync();
    world.server.pause();
    world.put("payments", "killed").await;
    assert_eq!(world.round().await.failed, 1);
    world.server.kill();
    world.server.restart();
    world.until_sent("killed").await;
    let ids = ["first", "killed", "unknown"];
    let once = ids.map(|id| (id.to_owned(), 1));
    assert_eq!(world.consume("payments", &ids).await, BTreeMap::from(once));
}
