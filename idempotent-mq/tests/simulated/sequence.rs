//! Numbers of a stream, registered by their producer: annotated handlers with `sequence = …`, over several consumers.
use std::sync::{Arc, Mutex};

use idempotent_core::{Clock, Executor, Identity, OnBrokenOrder, Policy, Rejection, Scene};
use idempotent_macros::idempotent;
use idempotent_mq::{Handling, Message, Messages};
use idempotent_testkit::VirtualClock;
use serde::Deserialize;

use crate::world::{Process, World, ms, secs};

#[derive(Deserialize)]
struct Points {
    user: String,
    number: u64,
    #[serde(default)]
    bad: bool,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("no such user")]
    NoUser,
}

/// What ran, in the order it began, and how many of a user ran at once.
#[derive(Clone)]
struct Log {
    ran: Arc<Mutex<Vec<String>>>,
    running: Arc<Mutex<Vec<String>>>,
    clock: VirtualClock,
}

#[idempotent(
    key = (&points.user, points.number),
    sequence = (&points.user, points.number),
    scope = "points",
    max_retries = 0,
    crate = idempotent_core
)]
async fn credit(points: &Points, log: &Log) -> Result<(), Failed> {
    if points.bad {
        return Err(Failed::NoUser);
    }
    assert!(!log.running.lock().unwrap().contains(&points.user), "two of {} side by side", points.user);
    log.running.lock().unwrap().push(points.user.clone());
    log.ran.lock().unwrap().push(format!("{}{}", points.user, points.number));
    log.clock.sleep_until(log.clock.now() + ms(100)).await;
    log.running.lock().unwrap().retain(|user| *user != points.user);
    Ok(())
}

fn handling(log: &Log) -> Handling {
    let log = log.clone();
    Messages::json().annotated(move |message: Message<Points>| {
        let log = log.clone();
        async move { credit(&message.body, &log).await }
    })
}

fn log(world: &World) -> Log {
    Log { ran: Arc::default(), running: Arc::default(), clock: world.clock.clone() }
}

fn ran(log: &Log) -> String {
    log.ran.lock().unwrap().join(" ")
}

/// The producer: it registers before it sends.
async fn register(world: &World, user: &str, numbers: &[u64]) {
    let producer = Executor::builder(world.store.clone()).clock(Arc::new(world.clock.clone())).build().unwrap();
    producer.register(&Identity::new(Scene::Mq, "points", user), numbers.iter().copied()).await.unwrap();
}

fn send(world: &World, user: &str, numbers: &[u64]) {
    for number in numbers {
        let body = format!(r#"{{"user": "{user}", "number": {number}}}"#);
        world.broker.send(&format!("{user}{number}"), &body);
    }
}

/// One that dies at its first run.
fn send_bad(world: &World, user: &str, number: u64) {
    let body = format!(r#"{{"user": "{user}", "number": {number}, "bad": true}}"#);
    world.broker.send(&format!("{user}{number}"), &body);
}

/// Three consumers of one message each at a time.
async fn three(world: &World, policy: Policy, log: &Log) -> Vec<Process> {
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(world.consume_by(policy, handling(log), |builder| builder.concurrency(1)).await);
    }
    processes
}

fn skip() -> Policy {
    Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60)))
}

fn count(processes: &[Process], outcome: &str) -> u64 {
    processes.iter().map(|process| process.executor.counts().of(outcome)).sum()
}

#[tokio::test]
async fn b34_s0_27_registered_3_2_1_of_one_user_at_3_consumers_run_as_1_2_3() {
    let world = World::new();
    let log = log(&world);
    let processes = three(&world, Policy::new(), &log).await;
    register(&world, "a", &[1, 2, 3]).await;
    send(&world, "a", &[3, 2, 1]);
    world.clock.advance(secs(60)).await;
    assert_eq!((ran(&log), world.broker.left()), ("a1 a2 a3".to_owned(), 0));
    assert!(count(&processes, "waiting") >= 2 && world.broker.dead().is_empty());
}

#[tokio::test]
async fn b34_s0_29_s0_30_a_consumer_that_is_killed_while_3_waits_loses_nothing() {
    let world = World::new();
    let log = log(&world);
    let first = world.consume(Policy::new(), handling(&log)).await;
    register(&world, "a", &[1, 2, 3]).await;
    send(&world, "a", &[3]);
    world.clock.advance(secs(5)).await;
    assert_eq!((ran(&log), world.broker.left()), (String::new(), 1));
    first.kill().await;
    world.broker.cut();
    world.consume(Policy::new(), handling(&log)).await;
    send(&world, "a", &[2, 1]);
    world.clock.advance(secs(60)).await;
    assert_eq!((ran(&log), world.broker.left()), ("a1 a2 a3".to_owned(), 0));
}

#[tokio::test]
async fn b34_s0_31_a_dead_2_holds_3_is_told_of_and_lets_it_go_after_its_time_and_others_are_not_delayed() {
    let world = World::new();
    let log = log(&world);
    let processes = three(&world, skip(), &log).await;
    register(&world, "a", &[1, 2, 3]).await;
    register(&world, "b", &[1, 2]).await;
    send_bad(&world, "a", 2);
    send(&world, "a", &[3, 1]);
    send(&world, "b", &[2, 1]);
    world.clock.advance(secs(20)).await;
    assert_eq!(world.broker.dead().len(), 1, "a2");
    let so_far = ran(&log);
    assert!(so_far.contains("a1") && !so_far.contains("a3"), "{so_far}");
    let of_b: Vec<_> = so_far.split(' ').filter(|ran| ran.starts_with('b')).collect();
    assert_eq!(of_b, ["b1", "b2"], "another user's stream is not kept waiting: {so_far}");
    assert!(count(&processes, "held") >= 1, "somebody is told");
    world.clock.advance(secs(70)).await;
    assert!(ran(&log).ends_with("a3"), "{}", ran(&log));
    assert_eq!(world.broker.left(), 0);
}

#[tokio::test]
async fn b34_a_number_that_was_registered_and_is_never_sent_holds_3_until_its_time_is_over() {
    let world = World::new();
    let log = log(&world);
    three(&world, skip(), &log).await;
    register(&world, "a", &[1, 2, 3]).await;
    send(&world, "a", &[1, 3]);
    world.clock.advance(secs(59)).await;
    assert_eq!(ran(&log), "a1");
    world.clock.advance(secs(20)).await;
    assert_eq!((ran(&log), world.broker.left()), ("a1 a3".to_owned(), 0));
    // Sent after all it comes late, and is not lost.
    send(&world, "a", &[2]);
    world.clock.advance(secs(5)).await;
    assert_eq!((ran(&log), world.broker.left()), ("a1 a3 a2".to_owned(), 0));
}
