//! Outages of the broker, long runs, and takeover within a group.
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{OutboundMessage, Retry, Settlement, Source, SourceErrorKind};
use idempotent_rocketmq::RocketSource;

use crate::broker::world::{World, until};

#[tokio::test]
async fn a_delivery_is_held_during_an_outage_and_settled_afterwards() {
    let world = World::alone("outages-1").await;
    let mut consumer = world.consumer();
    for id in ["acked", "retried"] {
        world.publish(world.message(id, "b")).await;
    }
    // The first call sets the prefetch.
    let mut held = consumer.take(2).await;
    if held.len() < 2 {
        held.push(consumer.next().await);
    }
    world.blocking(idempotent_harness::servers::RocketServer::kill).await;
    let retry = Settlement::Retry(Retry::after(Duration::from_secs(1), Timestamp(17)));
    let failed = consumer.settle(&held[1], &retry).await.unwrap_err();
    assert_eq!(failed.kind(), SourceErrorKind::Transient, "the copy is not stored: {failed}");
    world.blocking(idempotent_harness::servers::RocketServer::restart).await;
    consumer.insist(&held[1], &retry).await;
    consumer.insist(&held[0], &Settlement::Ack).await;
    let again = consumer.next().await;
    assert_eq!((again.0.id.as_deref(), again.0.attempt), (Some("retried"), Some(2)));
    consumer.insist(&again, &Settlement::Ack).await;
    world.emptied().await;
}

#[tokio::test]
async fn a_missing_topic_is_a_transient_error_until_it_is_declared() {
    let world = World::new("outages-2").await;
    let mut source = RocketSource::builder(world.server.url(), "later", "later-group").build().unwrap();
    let unknown = source.receive(1).await.unwrap_err();
    assert_eq!(unknown.kind(), SourceErrorKind::Transient, "brokers register at any time: {unknown}");
    source.declare(1).await.unwrap();
    world.publisher.publish(&OutboundMessage::new("later", "m", "b")).await.unwrap();
    let mut consumer = crate::broker::world::ManualConsumer(source);
    let held = consumer.next().await;
    assert_eq!(held.0.id.as_deref(), Some("m"));
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
}

/// By default the client fails a listener's call after 30 s.
#[tokio::test]
async fn a_run_longer_than_the_clients_default_timeout_is_not_redelivered() {
    let world = World::new("outages-3").await;
    let mut consumer = world.consumer();
    world.publish(world.message("m", "b")).await;
    let held = consumer.next().await;
    let long = tokio::time::sleep(Duration::from_secs(33));
    tokio::select! {
        _ = consumer.0.receive(1) => panic!("the held message was redelivered"),
        () = long => {}
    }
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
    world.emptied().await;
}

#[tokio::test]
async fn a_member_of_the_group_takes_over_the_queues_of_a_dropped_member() {
    let world = World::new("outages-4").await;
    let mut consumers = [world.consumer(), world.consumer()];
    world.publish(world.message("first", "b")).await;
    // One of the two owns the only queue.
    let [one, two] = &mut consumers;
    let (held, owner) = tokio::select! {
        held = one.next() => (held, 0),
        held = two.next() => (held, 1),
    };
    drop(held);
    let [one, two] = consumers;
    let (gone, mut left) = if owner == 0 { (one, two) } else { (two, one) };
    drop(gone);
    let again = left.next().await;
    assert_eq!(again.0.id.as_deref(), Some("first"));
    left.settle(&again, &Settlement::Ack).await.unwrap();
    until("the queue is empty", async || (world.left().await == 0).then_some(())).await;
}
