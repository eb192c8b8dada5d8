//! The time that an answer waits for its record, on a virtual clock.
use std::sync::{Arc, Mutex};

use crate::common::{End, Job, World, assert_in_flight, batch_of, id, ms, secs};
use idempotent::observe::RunInfo;
use idempotent::store::StateKind;
use idempotent::{Call, Event, Observer, Outcome, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};

on_all_stores! {
    an_answer_waits_for_its_record_no_longer_than_the_settle_timeout_and_is_recorded_later
    a_failure_is_answered_within_the_settle_timeout_and_its_key_is_free_once_the_store_is_back
    a_drain_waits_for_a_record_that_is_tried_in_the_background
    a_drain_counts_a_run_once_that_waits_for_its_record
    a_look_at_steps_that_hangs_counts_towards_the_settle_timeout
    a_first_try_that_hangs_leaves_time_for_another
    the_items_of_a_batch_have_one_settle_timeout
    an_observer_reads_how_a_settlement_in_the_background_ended
}

/// The lease is far longer than a client waits.
async fn an_answer_waits_for_its_record_no_longer_than_the_settle_timeout_and_is_recorded_later(world: World) {
    let worker = world.worker("a", Policy::new().settle_timeout(secs(2)));
    worker.store.fail_before(StoreOperation::Complete, FOREVER);
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
    worker.store.fail_before(StoreOperation::Release, FOREVER);
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
    worker.store.fail_before(StoreOperation::Complete, FOREVER);
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

async fn a_drain_counts_a_run_once_that_waits_for_its_record(world: World) {
    let worker = world.worker("a", Policy::new().settle_timeout(secs(2)));
    worker.store.fail_before(StoreOperation::Complete, FOREVER);
    let run = worker.spawn("k", &Job::takes(ms(0))).await;
    world.clock.advance(ms(100)).await;
    let drain = worker.drain(secs(10));
    world.clock.settle().await;
    worker.store.heal();
    world.clock.advance(ms(1_100)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran, "recorded within the timeout");
    let drained = drain.await.unwrap();
    assert_eq!((drained.finished, drained.abandoned), (1, 0));
}

async fn a_first_try_that_hangs_leaves_time_for_another(world: World) {
    let worker = world.worker("a", Policy::new().settle_timeout(secs(2)));
    worker.store.hang(StoreOperation::Complete, 1);
    let run = worker.spawn("k", &Job::takes(ms(0))).await;
    world.clock.advance(ms(1_900)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
}

/// A second run may have steps of the first.
async fn a_look_at_steps_that_hangs_counts_towards_the_settle_timeout(world: World) {
    let policy = Policy::new().settle_timeout(secs(2)).max_retries(Policy::NO_LIMIT);
    let worker = world.worker("a", policy);
    let job = Job::ends(ms(0), End::Err);
    drop(worker.spawn("k", &job).await.await.unwrap());
    let held = worker.spawn("k", &Job::takes(secs(60))).await;
    worker.kill(held).await;
    world.clock.advance(secs(31)).await;
    let next = world.worker("b", policy);
    next.store.hang(StoreOperation::Steps, FOREVER);
    let run = next.spawn("k", &job).await;
    world.clock.advance(ms(2_000)).await;
    assert!(run.is_finished(), "answered within the timeout");
    assert!(matches!(run.await.unwrap().0, Outcome::Released { .. }));
    assert_eq!(world.record("k").await.unwrap().state.kind(), StateKind::Vacant, "released in that time");
}

/// The completion of both hangs, and so does that of each.
async fn the_items_of_a_batch_have_one_settle_timeout(world: World) {
    let worker = world.worker("a", Policy::new().settle_timeout(secs(2)));
    worker.store.hang(StoreOperation::Complete, FOREVER);
    let executor = worker.executor.clone();
    let answers = tokio::spawn(async move {
        executor.run_batch(["k", "l"].map(|key| (Call::new(id(key)), ())).into(), batch_of(|()| Ok(1))).await
    });
    world.clock.settle().await;
    world.clock.advance(ms(2_100)).await;
    let outcomes: Vec<_> = answers.await.unwrap().into_iter().map(|answer| answer.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unrecorded, Outcome::Unrecorded]);
}

/// Ends of settlements in the background: the step, and whether the store applied it.
#[derive(Clone, Debug, Default)]
struct Late(Arc<Mutex<Vec<(&'static str, bool)>>>);

impl Observer for Late {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::SettledLate { step, error } = event {
            self.0.lock().unwrap().push((step, error.is_none()));
        }
    }
}

async fn an_observer_reads_how_a_settlement_in_the_background_ended(world: World) {
    let late = Late::default();
    let policy = Policy::new().settle_timeout(secs(2));
    let worker = world.worker_by("a", policy, |builder| builder.observer(late.clone()));
    let told = || std::mem::take(&mut *late.0.lock().unwrap());
    worker.store.fail_before(StoreOperation::Complete, FOREVER);
    let run = worker.spawn("k", &Job::takes(ms(0))).await;
    world.clock.advance(ms(2_100)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Unrecorded);
    assert_eq!(told(), [], "not ended yet");
    worker.store.heal();
    world.clock.advance(ms(1_100)).await;
    assert_eq!(told(), [("complete", true)]);
    worker.store.fail_before(StoreOperation::Release, FOREVER);
    let run = worker.spawn("l", &Job::ends(ms(0), End::Err)).await;
    world.clock.advance(ms(2_100)).await;
    drop(run.await.unwrap());
    world.clock.advance(secs(40)).await;
    assert_eq!(told(), [("release", false)], "the lease has expired");
}
