//! Messages that come after others: an annotated handler with `after = …`. What it shares with `sequence = …` is in
//! `chain_and_sequence`.
use idempotent_core::{Identity, OnBrokenOrder, Policy, Scene, StateKind, Store};
use idempotent_macros::idempotent;

use crate::simulated::points::{Failed, Log, Points, count, handling, send, send_bad, three};
use crate::world::{World, secs};

#[idempotent(
    key = (&points.user, points.number),
    after = (points.number > 1).then(|| (&points.user, points.number - 1)),
    scope = "points",
    max_retries = 0,
    crate = idempotent_core
)]
pub(crate) async fn credit(points: Points, log: Log) -> Result<(), Failed> {
    log.credit(&points).await
}

#[tokio::test]
async fn one_consumer_of_one_message_at_a_time_needs_no_order_from_the_broker_either() {
    let world = World::new();
    let log = Log::of(&world);
    world.consume_by(Policy::new(), handling(&log, credit), |builder| builder.concurrency(1)).await;
    send(&world, "a", &[5, 3, 1, 4, 2]);
    world.clock.advance(secs(120)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a2 a3 a4 a5".to_owned(), 0));
}

#[tokio::test]
async fn by_default_the_order_is_held_until_an_operator_resolves_the_dead_message() {
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
    let admin = world.store.capabilities().admin.unwrap();
    admin.forget(&key, dead.fencing, false, secs(3600)).await.unwrap();
    send(&world, "a", &[1]);
    world.clock.advance(secs(60)).await;
    assert_eq!((log.ran(), world.broker.left()), ("a1 a2".to_owned(), 0));
}

#[tokio::test]
async fn halted_messages_are_dead_lettered_one_after_the_other() {
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
