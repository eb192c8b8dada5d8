//! The time that an answer waits for its record, on a virtual clock.
use crate::common::{End, Job, World, assert_in_flight, ms, secs};
use idempotent::{Outcome, Policy, StateKind};
use idempotent_testkit::{FOREVER, Verb};

on_all_stores! {
    an_answer_waits_for_its_record_no_longer_than_the_settle_timeout_and_is_recorded_later
    a_failure_is_answered_within_the_settle_timeout_and_its_key_is_free_once_the_store_is_back
    a_drain_waits_for_a_record_that_is_tried_in_the_background
}

/// The lease is far longer than a client waits.
async fn an_answer_waits_for_its_record_no_longer_than_the_settle_timeout_and_is_recorded_later(world: World) {
    let worker = world.worker("a", Policy::new().settle_timeout(secs(2)));
    worker.store.fail_before(Verb::Complete, FOREVER);
    let job = Job::takes(ms(0));
    let run = worker.spawn("k", &job).await;
    world.clock.advance(ms(1_900)).await;
    assert!(!run.is_finished(), "tried until the timeout");
    world.clock.advance(ms(200)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Unrecorded);
    worker.store.heal();
    // At most a second between two tries.
    world.clock.advance(ms(1_100)).await;
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

async fn a_failure_is_answered_within_the_settle_timeout_and_its_key_is_free_once_the_store_is_back(world: World) {
    let worker = world.worker("a", Policy::new().settle_timeout(secs(2)));
    worker.store.fail_before(Verb::Release, FOREVER);
    let job = Job::ends(ms(0), End::Err);
    let run = worker.spawn("k", &job).await;
    world.clock.advance(ms(1_900)).await;
    assert!(!run.is_finished(), "tried until the timeout");
    world.clock.advance(ms(200)).await;
    assert!(matches!(run.await.unwrap().0, Outcome::Released { .. }));
    assert_in_flight(&worker.outcome("k", &job).await);
    worker.store.heal();
    world.clock.advance(ms(1_100)).await;
    let again = worker.spawn("k", &job).await;
    world.clock.advance(ms(0)).await;
    drop(again.await.unwrap());
    assert_eq!(job.runs(), 2, "long before the lease ends");
}

async fn a_drain_waits_for_a_record_that_is_tried_in_the_background(world: World) {
    let worker = world.worker("a", Policy::new().settle_timeout(secs(2)));
    worker.store.fail_before(Verb::Complete, FOREVER);
    let run = worker.spawn("k", &Job::takes(ms(0))).await;
    world.clock.advance(ms(2_100)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Unrecorded);
    let executor = worker.executor.clone();
    let drain = tokio::spawn(async move { executor.drain(secs(10)).await });
    world.clock.advance(ms(1_100)).await;
    assert!(!drain.is_finished(), "the record is not there yet");
    worker.store.heal();
    world.clock.advance(ms(1_100)).await;
    assert_eq!(drain.await.unwrap().abandoned, 0);
    assert_eq!(world.record("k").await.unwrap().state.kind(), StateKind::Consumed);
}
