//! An outbox in SQLite whose relay publishes to a stream, and whose consumer confirms the messages.
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use async_trait::async_trait;
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent_nats::{JetStreamPublisher, JetStreamSource};
use idempotent_sqlx::sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use idempotent_sqlx::sqlx::{Sqlite, Transaction};
use idempotent_sqlx::{Outbox, OutboxRecord, OutboxStatus, Relay};
use idempotent_testkit::VirtualClock;

use crate::delayed::now;
use crate::world::{Running, World, counting, secs, until};

/// A database with an outbox whose time the test moves.
struct Orders {
    pool: SqlitePool,
    outbox: Outbox<Sqlite>,
    clock: VirtualClock,
    _folder: tempfile::TempDir,
}

impl Orders {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("orders.db")).create_if_missing(true);
        let (pool, clock) = (SqlitePool::connect_with(options).await.unwrap(), VirtualClock::starting_at(now()));
        let builder = Outbox::builder(pool.clone()).create(true).clock(Arc::new(clock.clone()));
        Self { outbox: builder.open().await.unwrap(), pool, clock, _folder: folder }
    }

    /// Returns a transaction that has written these messages.
    async fn written(&self, messages: &[OutboundMessage]) -> Transaction<'static, Sqlite> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        self.outbox.enqueue_all(&mut transaction, messages).await.unwrap();
        transaction
    }

    async fn commit(&self, messages: &[OutboundMessage]) {
        self.written(messages).await.commit().await.unwrap();
    }

    async fn record(&self, id: &str) -> OutboxRecord {
        self.outbox.inspect(id).await.unwrap().unwrap().0
    }

    /// Returns whether the broker has confirmed all of these messages.
    async fn are_sent(&self, numbers: Range<u32>) -> bool {
        for number in numbers {
            if self.record(&format!("paid-{number}")).await.sent_at.is_none() {
                return false;
            }
        }
        true
    }

    fn relay(&self, publisher: impl Publish) -> Relay<Sqlite> {
        Relay::new(&self.outbox, Arc::new(publisher))
    }

    /// Makes each unconfirmed message due.
    fn later(&self) {
        self.clock.jump(secs(3_600));
    }

    /// Consumes all messages of the stream, and returns the number of runs.
    async fn consume(&self, world: &World, source: JetStreamSource) -> u32 {
        let (handling, runs) = counting();
        let consumer = world.consumer(source).log(Arc::new(self.outbox.clone()));
        let running = Running::new(consumer.build(handling).unwrap());
        until("all messages are acknowledged", async || world.open().await.0 == 0).await;
        running.ended().await.unwrap();
        runs.load(SeqCst)
    }
}

/// A publisher that loses the answers to its first call, as a relay that is killed does.
#[derive(Debug)]
struct LosesAnswers(JetStreamPublisher, AtomicBool);

#[async_trait]
impl Publish for LosesAnswers {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        let answers = self.0.publish(messages).await;
        match self.1.swap(true, SeqCst) {
            true => answers,
            false => {
                let lost = || Err(PublishError::new(PublishErrorKind::Unconfirmed, "the answer is lost"));
                answers.into_iter().map(|answer| answer.and_then(|_| lost())).collect()
            }
        }
    }
}

fn paid(number: u32) -> OutboundMessage {
    OutboundMessage::new("orders.paid", format!("paid-{number}"), "{}").aggregate(format!("order-{}", number % 3))
}

fn publisher(world: &World) -> JetStreamPublisher {
    JetStreamPublisher::new(world.server.url())
}

#[tokio::test]
async fn committed_messages_run_once_although_their_relay_sends_them_again() {
    let (world, orders) = (World::new().await, Orders::new().await);
    let source = world.source().await;
    let messages: Vec<_> = (0..20).map(paid).collect();
    orders.commit(&messages).await;
    orders.written(&[paid(20)]).await.rollback().await.unwrap();
    let relay = orders.relay(LosesAnswers(publisher(&world), AtomicBool::default()));
    let round = relay.round().await.unwrap();
    assert_eq!((round.sent, round.failed > 0), (0, true), "{round:?}");
    until("all are sent", async || {
        orders.later();
        relay.round().await.unwrap();
        orders.are_sent(0..20).await
    })
    .await;
    let stored = world.client.get_stream("ORDERS").await.unwrap().cached_info().state.messages;
    assert_eq!(stored, 20, "the stream drops the copies");
    assert_eq!(orders.consume(&world, source).await, 20);
    for number in 0..20 {
        assert_eq!(orders.record(&format!("paid-{number}")).await.status, OutboxStatus::Confirmed, "{number}");
    }
    orders.later();
    assert_eq!(relay.round().await.unwrap().looked_at, 0, "nothing is left to do");
}

#[tokio::test]
async fn a_copy_that_arrives_after_the_duplicate_window_does_not_run_again() {
    let (world, orders) = (World::new().await, Orders::new().await);
    let relay = orders.relay(publisher(&world));
    let source = world.source().await;
    orders.commit(&[paid(0)]).await;
    assert_eq!(relay.round().await.unwrap().sent, 1);
    // As after the window: the copy has no `Nats-Msg-Id`, by which the server would recognize it.
    let stream = world.client.get_stream("ORDERS").await.unwrap();
    let first = stream.get_raw_message(1).await.unwrap();
    let mut headers = first.headers.clone();
    headers.insert("Idempotent-Id", "paid-0");
    headers.insert("Nats-Msg-Id", "another");
    let sent = world.client.publish_with_headers("orders.paid", headers, first.payload).await.unwrap();
    sent.await.unwrap();
    assert_eq!(world.open().await.0, 2);
    assert_eq!(orders.consume(&world, source).await, 1);
    assert_eq!(orders.record("paid-0").await.status, OutboxStatus::Confirmed);
}

#[tokio::test]
async fn messages_that_were_written_while_the_server_was_away_are_sent_after_its_return() {
    let (world, orders) = (World::on(NatsServer::start_durable()).await, Orders::new().await);
    let relay = orders.relay(publisher(&world));
    world.source().await;
    orders.commit(&[paid(0)]).await;
    assert_eq!(relay.round().await.unwrap().sent, 1);
    world.server.kill();
    orders.commit(&[paid(1), paid(2)]).await;
    orders.later();
    assert_eq!(relay.round().await.unwrap().sent, 0);
    world.server.restart();
    until("the rest is sent", async || {
        orders.later();
        relay.round().await.unwrap();
        orders.are_sent(1..3).await
    })
    .await;
    assert_eq!(orders.consume(&world, world.source().await).await, 3);
    for id in ["paid-0", "paid-1", "paid-2"] {
        assert_eq!(orders.record(id).await.status, OutboxStatus::Confirmed, "{id}");
    }
}

#[tokio::test]
async fn a_message_of_an_outbox_is_delayed_by_the_server_or_waits_for_a_stream_that_can() {
    let (world, orders) = (World::new().await, Orders::new().await);
    let relay = orders.relay(publisher(&world));
    world.source().await;
    let due = now() + secs(2);
    orders.commit(&[paid(0).deliver_at(due)]).await;
    let round = relay.round().await.unwrap();
    assert_eq!((round.sent, round.refused), (0, 1), "{round:?}");
    let error = orders.record("paid-0").await.last_error.unwrap();
    assert!(error.contains("`declare` and `delays`"), "{error}");

    world.client.delete_stream("ORDERS").await.unwrap();
    let source = world.builder().delays().connect().await.unwrap();
    orders.later();
    assert_eq!(relay.round().await.unwrap().sent, 1);
    until("the message is due", async || world.open().await.0 == 1).await;
    assert!(now() >= due, "{:?} too early", due - now());
    assert_eq!(orders.consume(&world, source).await, 1);
    assert_eq!(orders.record("paid-0").await.status, OutboxStatus::Confirmed);
}
