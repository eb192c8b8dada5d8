//! An outbox on SQLite, its relay and its consumer on a real RocketMQ: by its places, and without its broker.
use std::time::Duration;

use idempotent::mq::{Consumer, OutboundMessage};
use idempotent::outbox::{OutboxStatus, Relay};
use idempotent::rocketmq::{RocketPublisher, RocketSource};
use idempotent::{Executor, MemoryStore};
use idempotent_harness::servers::RocketServer;

use crate::outbox::world::{World, consume_until, once, round};

/// Starts a server with a topic `payments` of one queue.
async fn start() -> (RocketServer, World, Relay<sqlx::Sqlite>) {
    let (server, world) = (RocketServer::start(), World::new().await);
    let publisher = RocketPublisher::builder(server.url()).give_up_after(Duration::from_secs(5));
    let relay = world.relay(publisher.build().unwrap());
    source(&server).declare(1).await.unwrap();
    (server, world, relay)
}

fn source(server: &RocketServer) -> RocketSource {
    RocketSource::builder(server.url(), "payments", "billing").build().unwrap()
}

async fn put(world: &World, id: &str) {
    world.enqueue(OutboundMessage::new("payments", id, "{}").aggregate("account")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_lost_once_a_consumer_has_passed_its_place_and_no_sooner() {
    let ((server, world, relay), executor) = (start().await, Executor::new(MemoryStore::new()));
    put(&world, "lost").await;
    assert_eq!(round(&relay).await.sent, 1);
    // For the outbox, the broker has lost the message, because this consumer has no log.
    let elsewhere = Consumer::builder(source(&server), "billing", Executor::new(MemoryStore::new()));
    assert_eq!(consume_until(elsewhere, async |counts| counts.acked >= 1).await, once(&["lost"]));
    world.later();
    assert_eq!(round(&relay).await.sent, 0, "it may wait in its queue: nobody has passed it");
    put(&world, "next").await;
    world.until_sent(&relay, "next").await;
    assert_eq!(world.consume(source(&server), &executor, &["next"]).await, once(&["next"]));
    let lost = world.stub("lost").await;
    assert_eq!((lost.status, lost.sends), (OutboxStatus::Unconfirmed, 1));
    world.later();
    assert_eq!(round(&relay).await.sent, 1, "the next one was seen");
    assert!(world.stub("lost").await.place > lost.place);
    assert_eq!(world.consume(source(&server), &executor, &["lost"]).await, once(&["lost"]));
    assert_eq!(world.stub("lost").await.sends, 2);
    world.later();
    assert_eq!(round(&relay).await.looked_at, 0, "nothing is left to do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_broker_an_outbox_uses_nothing_up_and_what_is_killed_between_is_sent_again_and_done_once() {
    let ((server, world, relay), executor) = (start().await, Executor::new(MemoryStore::new()));
    put(&world, "first").await;
    world.until_sent(&relay, "first").await;
    assert_eq!(world.consume(source(&server), &executor, &["first"]).await, once(&["first"]));
    server.kill();
    // Seen by the publisher's client, whose connection it was.
    put(&world, "second").await;
    round(&relay).await;
    let sends = world.stub("second").await.sends;
    put(&world, "third").await;
    for _ in 0..3 {
        world.later();
        assert_eq!(round(&relay).await.sent, 0);
    }
    assert_eq!((world.stub("second").await.sends, world.stub("third").await.sends), (sends, 0));
    server.restart();
    for id in ["second", "third"] {
        world.until_sent(&relay, id).await;
    }
    // It takes the message, perhaps, and says nothing any more.
    server.pause();
    put(&world, "unknown").await;
    assert_eq!(round(&relay).await.failed, 1);
    let unknown = world.stub("unknown").await;
    assert_eq!((unknown.status, unknown.sends, unknown.sent_at), (OutboxStatus::Unconfirmed, 1, None), "{unknown:?}");
    server.resume();
    world.until_sent(&relay, "unknown").await;
    let ids = ["second", "third", "unknown"];
    assert_eq!(world.consume(source(&server), &executor, &ids).await, once(&ids));
}
