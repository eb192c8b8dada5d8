//! Bodies that are too large, and keys from bodies.
use idempotent_core::Policy;
use idempotent_mq::{Delivery, HandlerResult, KeyFrom, Message, Messages};
use serde::Deserialize;

use crate::world::{Job, World, ms};

#[tokio::test]
async fn a_body_over_the_limit_is_dead_lettered_as_it_came_and_not_decoded() {
    let world = World::new();
    let handling = Messages::decoded(|delivery: &Delivery| match delivery.body.len() {
        ..=4 => Ok(()),
        _ => panic!("decoded in spite of its size"),
    })
    .keyed(KeyFrom::message_id())
    .run(|_| async { HandlerResult::Done });
    let process = world.consume_by(Policy::new(), handling, |builder| builder.max_body(4)).await;
    world.broker.send("fits", "four");
    world.broker.send("large", "five!");
    world.clock.settle().await;
    let (dead, letter) = world.broker.dead().remove(0);
    assert_eq!((&dead.body[..], world.broker.dead().len()), (&b"five!"[..], 1));
    assert!(letter.reason.contains("5 bytes") && letter.reason.contains("max_body"), "{}", letter.reason);
    assert_eq!((process.counts().acked, process.counts().undecodable, process.counts().dead_lettered), (1, 1, 1));
}

#[tokio::test]
async fn without_a_setting_a_body_over_16_mebibytes_is_dead_lettered_and_not_decoded() {
    const LIMIT: usize = 16 << 20;
    let world = World::new();
    let handling = Messages::decoded(|delivery: &Delivery| match delivery.body.len() {
        ..=LIMIT => Ok(()),
        _ => panic!("decoded in spite of its size"),
    })
    .keyed(KeyFrom::message_id())
    .run(|_| async { HandlerResult::Done });
    let process = world.consume_by(Policy::new(), handling, |builder| builder).await;
    world.broker.send("fits", &"x".repeat(LIMIT));
    world.broker.send("large", &"x".repeat(LIMIT + 1));
    world.clock.settle().await;
    let (dead, letter) = world.broker.dead().remove(0);
    assert_eq!((dead.body.len(), world.broker.dead().len()), (LIMIT + 1, 1));
    assert!(letter.reason.contains("16777217 bytes, the limit is 16777216"), "{}", letter.reason);
    assert_eq!((process.counts().acked, process.counts().undecodable, process.counts().dead_lettered), (1, 1, 1));
}

#[derive(Deserialize)]
struct Payment {
    keys: String,
}

/// The two texts have the same 32-bit hash code in Java.
#[tokio::test]
async fn an_event_that_its_producer_creates_again_runs_once_and_an_event_with_an_equal_hash_code_runs() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let handling = Messages::json().keyed(KeyFrom::body("keys", |payment: &Payment| payment.keys.clone())).run({
        let job = job.clone();
        move |message: Message<Payment>| {
            let job = job.clone();
            async move { job.run(message).await }
        }
    });
    let process = world.consume(Policy::new(), handling).await;
    for (id, keys, uuid, timestamp) in
        [("m1", "Aa", "4f1c", 1_000), ("m2", "Aa", "9b2d", 2_000), ("m3", "BB", "77aa", 1_000)]
    {
        let body = format!(r#"{{"keys": "{keys}", "uuid": "{uuid}", "timestamp": {timestamp}}}"#);
        world.broker.send(id, &body);
        world.clock.advance(ms(20)).await;
    }
    assert_eq!((process.counts().acked, job.runs()), (3, 2));
}
