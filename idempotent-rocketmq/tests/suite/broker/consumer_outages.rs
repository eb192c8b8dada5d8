//! A broker that goes away, and runs that take long.
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{Retry, Settlement, Source, SourceErrorKind};
use idempotent_rocketmq::{RocketMessage, RocketSource};

use crate::broker::world::{World, until};

#[tokio::test]
async fn what_is_held_over_an_outage_stays_held_and_is_settled_behind_it() {
    let world = World::alone("outages-1").await;
    let mut hand = world.hand();
    for id in ["acked", "retried"] {
        world.publish(RocketMessage::new(id, "b")).await;
    }
    // Only what it may hold comes; the first time says how much that is.
    let mut held = hand.take(2).await;
    if held.len() < 2 {
        held.push(hand.next().await);
    }
    world.blocking(idempotent_testkit::servers::RocketServer::kill).await;
    let retry = Settlement::Retry(Retry::after(Duration::from_secs(1), Timestamp(17)));
    let failed = hand.settle(&held[1], &retry).await.unwrap_err();
    assert_eq!(failed.kind(), SourceErrorKind::Transient, "the copy is nowhere: {failed}");
    world.blocking(idempotent_testkit::servers::RocketServer::restart).await;
    hand.insist(&held[1], &retry).await;
    hand.insist(&held[0], &Settlement::Ack).await;
    let again = hand.next().await;
    assert_eq!((again.0.id.as_deref(), again.0.attempt), (Some("retried"), Some(2)));
    hand.insist(&again, &Settlement::Ack).await;
    world.emptied().await;
}

#[tokio::test]
async fn a_message_without_a_topic_comes_once_there_is_one() {
    let world = World::new("outages-2").await;
    let mut source = RocketSource::builder(world.server.name_server(), "later", "later-group").build().unwrap();
    let unknown = source.receive(1).await.unwrap_err();
    assert_eq!(unknown.kind(), SourceErrorKind::Transient, "brokers come and go: {unknown}");
    source.declare(1).await.unwrap();
    world.publisher.publish("later", &RocketMessage::new("m", "b")).await.unwrap();
    let mut hand = crate::broker::world::Hand(source);
    let held = hand.next().await;
    assert_eq!(held.0.id.as_deref(), Some("m"));
    hand.settle(&held, &Settlement::Ack).await.unwrap();
}

/// The client gives a listener 30 s, and takes a longer call for one that failed.
#[tokio::test]
async fn k62_a_run_that_takes_longer_than_the_clients_patience_is_not_sent_back_meanwhile() {
    let world = World::new("outages-3").await;
    let mut hand = world.hand();
    world.publish(RocketMessage::new("m", "b")).await;
    let held = hand.next().await;
    let long = tokio::time::sleep(Duration::from_secs(33));
    tokio::select! {
        _ = hand.0.receive(1) => panic!("it came again while it was held"),
        () = long => {}
    }
    hand.settle(&held, &Settlement::Ack).await.unwrap();
    world.emptied().await;
}

#[tokio::test]
async fn another_consumer_of_the_group_takes_over_the_queues_of_one_that_is_gone() {
    let world = World::new("outages-4").await;
    let mut hands = [world.hand(), world.hand()];
    world.publish(RocketMessage::new("first", "b")).await;
    // The one queue is one consumer's.
    let [one, two] = &mut hands;
    let (held, owner) = tokio::select! {
        held = one.next() => (held, 0),
        held = two.next() => (held, 1),
    };
    drop(held);
    let [one, two] = hands;
    let (gone, mut left) = if owner == 0 { (one, two) } else { (two, one) };
    drop(gone);
    let again = left.next().await;
    assert_eq!(again.0.id.as_deref(), Some("first"));
    left.settle(&again, &Settlement::Ack).await.unwrap();
    until("nothing is left", async || (world.left().await == 0).then_some(())).await;
}
