//! Numbers of a stream, registered by their producer: annotated handlers with `sequence = …`, over several consumers.
use std::sync::Arc;

use idempotent_core::{Executor, Identity, Policy, Scene};
use idempotent_macros::idempotent;

use crate::simulated::points::{Failed, Log, Points, count, handling, send, send_bad, skip, three};
use crate::world::{World, secs};

#[idempotent(
    key = (&points.user, points.number),
    sequence = (&points.user, points.number),
    scope = "points",
    max_retries = 0,
    crate = idempotent_core
)]
async fn credit(points: Points, log: Log) -> Result<(), Failed> {
    log.credit(&points).await
}

/// The producer: it registers before it sends.
async fn register(world: &World, user: &str, numbers: &[u64]) {
    let producer = Executor::builder(world.store.clone()).clock(Arc::new(world.clock.clone())).build().unwrap();
    producer.register(&Identity::new(Scene::Mq, "points", user), numbers.iter().copied()).await.unwrap();
}

#[tokio::test]
async fn b34_s0_27_registered_3_2_1_of_one_user_at_3_consumers_run_as_1_2_3() {
    let world = World::new();
    let log = Log::of(&world);
    let processes = three(&world, Policy::new(), || handling(&log, credit)).await;
    register(&world, "a", &[1, 2, 3]).await;
    send(&world, "a", &[3, 2, 1]);
    world.clock.advance(secs(60)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a2 a3".to_owned(), 0));
    assert!(count(&processes, "waiting") >= 2 && world.broker.dead().is_empty());
}

#[tokio::test]
async fn b34_s0_29_s0_30_a_consumer_that_is_killed_while_3_waits_loses_nothing() {
    let world = World::new();
    let log = Log::of(&world);
    let first = world.consume(Policy::new(), handling(&log, credit)).await;
    register(&world, "a", &[1, 2, 3]).await;
    send(&world, "a", &[3]);
    world.clock.advance(secs(5)).await;
    assert_eq!((log.ran(), world.broker.left()), (String::new(), 1));
    first.kill().await;
    world.broker.cut();
    world.consume(Policy::new(), handling(&log, credit)).await;
    send(&world, "a", &[2, 1]);
    world.clock.advance(secs(60)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a2 a3".to_owned(), 0));
}

#[tokio::test]
async fn b34_s0_31_a_dead_2_holds_3_is_told_of_and_lets_it_go_after_its_time_and_others_are_not_delayed() {
    let world = World::new();
    let log = Log::of(&world);
    let processes = three(&world, skip(), || handling(&log, credit)).await;
    register(&world, "a", &[1, 2, 3]).await;
    register(&world, "b", &[1, 2]).await;
    send_bad(&world, "a", 2);
    send(&world, "a", &[3, 1]);
    send(&world, "b", &[2, 1]);
    world.clock.advance(secs(20)).await;
    assert_eq!(world.broker.dead().len(), 1, "a2");
    let so_far = log.ran();
    assert!(so_far.contains("a1") && !so_far.contains("a3"), "{so_far}");
    let of_b: Vec<_> = so_far.split(' ').filter(|ran| ran.starts_with('b')).collect();
    assert_eq!(of_b, ["b1", "b2"], "another user's stream is not kept waiting: {so_far}");
    assert!(count(&processes, "held") >= 1, "somebody is told");
    world.clock.advance(secs(70)).await;
    assert!(log.ran().ends_with("a3"), "{}", log.ran());
    assert_eq!(world.broker.left(), 0);
}

#[tokio::test]
async fn b34_a_number_that_was_registered_and_is_never_sent_holds_3_until_its_time_is_over() {
    let world = World::new();
    let log = Log::of(&world);
    three(&world, skip(), || handling(&log, credit)).await;
    register(&world, "a", &[1, 2, 3]).await;
    send(&world, "a", &[1, 3]);
    world.clock.advance(secs(59)).await;
    assert_eq!(log.ran(), "a1");
    world.clock.advance(secs(20)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a3".to_owned(), 0));
    // Sent after all it comes late, and is not lost.
    send(&world, "a", &[2]);
    world.clock.advance(secs(5)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a3 a2".to_owned(), 0));
}
