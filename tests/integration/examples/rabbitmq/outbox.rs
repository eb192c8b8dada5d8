//! An outbox on SQLite, its relay and its consumer on a real broker that takes nothing, says nothing, and dies.
use std::time::Duration;

use idempotent::outbox::{OutboxStatus, Relay};
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
use idempotent::{Executor, MemoryStore};
use idempotent_harness::servers::RabbitServer;

use crate::outbox::world::{World, once, round};

async fn start() -> (RabbitServer, World, Relay<sqlx::Sqlite>) {
    let (server, world) = (RabbitServer::start(), World::new().await);
    let publisher = RabbitPublisher::builder(server.url());
    let publisher = publisher.confirm_within(Duration::from_secs(3)).give_up_after(Duration::from_secs(3));
    let relay = world.relay(publisher.build().unwrap());
    (server, world, relay)
}

fn source(server: &RabbitServer, queue: &str) -> RabbitSource {
    RabbitSource::builder(server.url(), Queue::classic(queue)).build().unwrap()
}

async fn declare(server: &RabbitServer, queue: &str) {
    source(server, queue).declare().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_a_consumer_stays_unconfirmed_and_is_sent_when_one_starts() {
    let (server, world, relay) = start().await;
    declare(&server, "there").await;
    world.put("nowhere", "early").await;
    world.put("there", "usual").await;
    round(&relay).await;
    world.until_sent(&relay, "usual").await;
    let early = world.stub("early").await;
    assert_eq!((early.status, early.sent_at), (OutboxStatus::Unconfirmed, None), "{early:?}");
    assert!(early.failures > 0 && early.last_error.as_ref().unwrap().contains("no queue is bound"), "{early:?}");
    declare(&server, "nowhere").await;
    world.until_sent(&relay, "early").await;
    let executor = Executor::new(MemoryStore::new());
    assert_eq!(world.consume(source(&server, "nowhere"), &executor, &["early"]).await, once(&["early"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_message_is_sent_again_under_its_id_and_has_its_effect_once() {
    let (server, world, relay) = start().await;
    declare(&server, "payments").await;
    world.put("payments", "first").await;
    world.until_sent(&relay, "first").await;
    // It takes the message, perhaps, and says nothing any more.
    server.pause();
    world.put("payments", "unknown").await;
    assert_eq!(round(&relay).await.failed, 1);
    let unknown = world.stub("unknown").await;
    assert_eq!((unknown.status, unknown.sends, unknown.sent_at), (OutboxStatus::Unconfirmed, 1, None), "{unknown:?}");
    server.resume();
    world.until_sent(&relay, "unknown").await;
    // Killed between a sending and its confirm; the queue itself is not what is put to the test.
    server.sync();
    server.pause();
    world.put("payments", "killed").await;
    assert_eq!(round(&relay).await.failed, 1);
    server.kill();
    server.restart();
    world.until_sent(&relay, "killed").await;
    let (executor, ids) = (Executor::new(MemoryStore::new()), ["first", "killed", "unknown"]);
    assert_eq!(world.consume(source(&server, "payments"), &executor, &ids).await, once(&ids));
}
