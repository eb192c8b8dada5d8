//! Messages that come after others: annotated handlers with `after = …`, over several consumers.
use idempotent_core::{Identity, OnBrokenOrder, Policy, Scene, StateKind, Store};
use idempotent_macros::idempotent;

use crate::simulated::points::{Failed, Log, Points, count, handling, send, send_bad, skip, three};
use crate::world::{World, secs};

#[idempotent(
    key = (&points.user, points.number),
    after = (points.number > 1).then(|| (&points.user, points.number - 1)),
    scope = "points",
    max_retries = 0,
    crate = idempotent_core
)]
async fn credit(points: Points, log: Log) -> Result<(), Failed> {
    log.credit(&points).await
}

#[tokio::test]
async fn b34_s0_27_numbers_3_2_1_of_one_user_to_3_consumers_run_as_1_2_3() {
    let world = World::new();
    let log = Log::of(&world);
    let processes = three(&world, Policy::new(), || handling(&log, credit)).await;
    send(&world, "a", &[3, 2, 1]);
    world.clock.advance(secs(60)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a2 a3".to_owned(), 0));
    // What was put off had no attempt taken off it: each gets one run, and none died.
    assert!(count(&processes, "waiting") >= 2);
    assert!(world.broker.dead().is_empty());
}

#[tokio::test]
async fn s0_26_one_consumer_of_one_message_at_a_time_needs_no_order_from_the_broker_either() {
    let world = World::new();
    let log = Log::of(&world);
    world.consume_by(Policy::new(), handling(&log, credit), |builder| builder.concurrency(1)).await;
    send(&world, "a", &[5, 3, 1, 4, 2]);
    world.clock.advance(secs(120)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a2 a3 a4 a5".to_owned(), 0));
}

#[tokio::test]
async fn b34_s0_30_a_consumer_that_is_killed_while_3_waits_loses_nothing() {
    let world = World::new();
    let log = Log::of(&world);
    let first = world.consume(Policy::new(), handling(&log, credit)).await;
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
    send_bad(&world, "a", 2);
    send(&world, "a", &[3, 1]);
    send(&world, "b", &[2, 1]);
    world.clock.advance(secs(10)).await;
    assert_eq!(world.broker.dead().len(), 1, "a2");
    let so_far = log.ran();
    assert!(so_far.contains("a1") && !so_far.contains("a3"), "{so_far}");
    assert!(so_far.contains("b1 b2"), "another user's chain is not kept waiting: {so_far}");
    assert!(count(&processes, "held") >= 1, "somebody is told");
    world.clock.advance(secs(70)).await;
    assert!(log.ran().ends_with("a3"), "{}", log.ran());
    assert_eq!(world.broker.left(), 0);
}

#[tokio::test]
async fn b34_a_number_that_is_never_sent_holds_3_until_its_time_is_over() {
    let world = World::new();
    let log = Log::of(&world);
    three(&world, skip(), || handling(&log, credit)).await;
    send(&world, "a", &[1, 3]);
    world.clock.advance(secs(59)).await;
    assert_eq!(log.ran(), "a1");
    world.clock.advance(secs(5)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a3".to_owned(), 0));
    // Sent after all it comes late, and is not lost.
    send(&world, "a", &[2]);
    world.clock.advance(secs(5)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a3 a2".to_owned(), 0));
}

#[tokio::test]
async fn s0_31_by_default_it_is_held_until_a_person_has_put_the_dead_one_right() {
    let world = World::new();
    let log = Log::of(&world);
    let processes = three(&world, Policy::new(), || handling(&log, credit)).await;
    send_bad(&world, "a", 1);
    send(&world, "a", &[2]);
    world.clock.advance(secs(2 * 3600)).await;
    assert_eq!((log.ran(), world.broker.left()), (String::new(), 1));
    assert!(count(&processes, "held") > 100);
    let key = Identity::new(Scene::Mq, "points", &("a", 1)).key("idempotent").unwrap();
    let dead = world.store.peek(&key).await.unwrap().unwrap();
    assert_eq!(dead.state.kind(), StateKind::Dead);
    let admin = world.store.abilities().admin.unwrap();
    admin.forget(&key, dead.fencing, false, secs(3600)).await.unwrap();
    send(&world, "a", &[1]);
    world.clock.advance(secs(60)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a2".to_owned(), 0));
}

#[tokio::test]
async fn s0_31_halted_messages_are_put_aside_one_after_the_other() {
    let world = World::new();
    let log = Log::of(&world);
    three(&world, Policy::new().on_broken_order(OnBrokenOrder::Halt(secs(60))), || handling(&log, credit)).await;
    send_bad(&world, "a", 1);
    send(&world, "a", &[3, 2]);
    world.clock.advance(secs(60)).await;
    let reasons: Vec<_> = world.broker.dead().iter().map(|(_, letter)| letter.reason.to_string()).collect();
    assert_eq!((reasons.len(), world.broker.left()), (3, 0), "{reasons:?}");
    let never_ran = reasons.iter().filter(|reason| reason.starts_with("halted before it ran: its predecessor is dead"));
    assert_eq!(never_ran.count(), 2, "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.starts_with("given up after 1 run: ")), "{reasons:?}");
    assert_eq!(log.ran(), "");
}
