//! Bodies that are too large, and keys from bodies.
use idempotent_core::Policy;
use idempotent_mq::{Delivery, HandlerResult, KeyFrom, Messages, Undecodable};
use serde::Deserialize;

use crate::world::{Building, Job, World, ms};

#[tokio::test]
async fn a_body_over_the_limit_is_dead_lettered_as_it_came_and_not_decoded() {
    for (setting, limit) in [(Some(4), 4), (None, 16 << 20)] {
        let world = World::new();
        let decode = move |delivery: &Delivery| -> Result<(), Undecodable> {
            assert!(delivery.body.len() <= limit, "decoded in spite of its size");
            Ok(())
        };
        let handling = Messages::decoded(decode).keyed(KeyFrom::message_id()).run(|_| async { HandlerResult::Done });
        let more = |builder: Building| match setting {
            Some(setting) => builder.max_body(setting),
            None => builder,
        };
        let process = world.consume_by(Policy::new(), handling, more).await;
        let large = "x".repeat(limit + 1);
        world.broker.send("fits", &large[1..]);
        world.broker.send("large", &large);
        world.clock.settle().await;
        let [(dead, letter)] = &world.broker.dead()[..] else { panic!("one dead letter for {setting:?}") };
        assert!(dead.body == large.as_bytes(), "{setting:?}");
        let reason = format!("{} bytes, the limit is {limit}", limit + 1);
        assert!(letter.reason.contains(&reason) && letter.reason.contains("max_body"), "{}", letter.reason);
        let counts = process.counts();
        assert_eq!((counts.acked, counts.undecodable, counts.dead_lettered), (1, 1, 1), "{setting:?}");
    }
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
    let key = KeyFrom::body("keys", |payment: &Payment| payment.keys.clone());
    let handling = Messages::json().keyed(key).run(job.function());
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
