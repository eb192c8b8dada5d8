//! Limits of time and size, at their exact values.
use idempotent::store::StateKind;
use idempotent::{Call, OnInFlight, OnLeaseLost, Outcome, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::common::{AppError, End, Job, PlainHandler, Worker, World, assert_in_flight, id, ms, on_memory, secs};

/// Checks that a task is still running 1 ms before this time, and ends then.
async fn ends_after<T>(world: &World, time: std::time::Duration, task: &tokio::task::JoinHandle<T>) {
    world.clock.advance(time - ms(1)).await;
    assert!(!task.is_finished());
    world.clock.advance(ms(1)).await;
    assert!(task.is_finished());
}

#[test]
fn the_return_of_a_key_that_was_granted_during_a_drain_takes_at_most_a_tenth_of_its_lease() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(secs(30)));
        worker.store.delay_reply(StoreOperation::Claim, ms(500));
        worker.store.hang(StoreOperation::Release, FOREVER);
        let run = worker.spawn("k", &Job::takes(ms(0))).await;
        let _drain = worker.drain(secs(60));
        ends_after(&world, ms(3_500), &run).await;
        assert!(matches!(run.await.unwrap().0, Outcome::Draining { .. }));
    });
}

#[test]
fn a_run_that_ends_after_its_lease_has_a_tenth_of_the_lease_to_settle() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(secs(30)).on_lease_lost(OnLeaseLost::Finish));
        worker.store.fail_before(StoreOperation::Renew, FOREVER);
        worker.store.fail_before(StoreOperation::Complete, 1);
        let run = worker.spawn("k", &Job::takes(secs(40))).await;
        world.clock.advance(secs(40)).await;
        world.clock.advance(ms(10)).await;
        assert!(run.is_finished());
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
    });
}

#[test]
fn a_release_waits_for_the_store_to_say_whether_there_are_steps() {
    on_memory(async |world| {
        let policy = Policy::new().max_retries(Policy::NO_LIMIT);
        let (killed, worker) = (world.worker("a", policy), world.worker("b", policy));
        let run = killed.spawn("k", &Job::takes(secs(600))).await;
        killed.kill(run).await;
        world.clock.advance(secs(31)).await;
        worker.store.delay(StoreOperation::Steps, ms(100));
        let run = worker.spawn("k", &Job::ends(ms(0), End::Err)).await;
        world.clock.advance(ms(100)).await;
        assert!(matches!(run.await.unwrap().0, Outcome::Released { .. }));
        assert!(world.record("k").await.is_none(), "no steps, and no count to keep");
    });
}

#[test]
fn a_release_that_keeps_its_record_does_not_ask_for_steps() {
    on_memory(async |world| {
        let policy = Policy::new().max_retries(5);
        let (killed, worker) = (world.worker("a", policy), world.worker("b", policy));
        let run = killed.spawn("k", &Job::takes(secs(600))).await;
        killed.kill(run).await;
        world.clock.advance(secs(31)).await;
        assert!(matches!(worker.outcome("k", &Job::ends(ms(0), End::Err)).await, Outcome::Released { .. }));
        assert_eq!(world.record("k").await.unwrap().state.kind(), StateKind::Vacant);
        assert!(world.asked(StoreOperation::Steps).is_empty());
    });
}

#[test]
fn each_try_of_a_completion_takes_a_third_of_the_remaining_time() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().settle_timeout(ms(0)));
        worker.store.hang(StoreOperation::Complete, 2);
        let run = worker.spawn("k", &Job::takes(ms(0))).await;
        world.clock.advance(secs(30)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        assert_eq!(world.asked(StoreOperation::Complete).len(), 3);
    });
}

#[test]
fn a_claim_without_an_answer_is_not_repeated_after_two_thirds_of_its_lease() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(secs(30)));
        worker.store.hang(StoreOperation::Claim, FOREVER);
        let run = worker.spawn("k", &Job::takes(ms(0))).await;
        ends_after(&world, ms(20_010), &run).await;
        assert_eq!(world.asked(StoreOperation::Claim), [0, 10_010]);
    });
}

/// Starts a run of another worker, and a call that waits for it for at most 2 s.
async fn waiting(world: &World) -> (Worker, tokio::task::JoinHandle<Outcome>) {
    let owner = world.worker("owner", Policy::new());
    let waiter = world.worker("waiter", Policy::new().on_in_flight(OnInFlight::Wait(secs(2))));
    owner.spawn("k", &Job::takes(secs(1))).await;
    let waits = waiter.clone();
    let run = tokio::spawn(async move { waits.outcome("k", &Job::takes(ms(0))).await });
    world.clock.settle().await;
    (waiter, run)
}

#[test]
fn a_call_that_waits_ends_in_flight_at_its_limit_if_the_store_does_not_answer() {
    on_memory(async |world| {
        let (waiter, run) = waiting(&world).await;
        waiter.store.hang(StoreOperation::Claim, FOREVER);
        ends_after(&world, secs(2), &run).await;
        assert_in_flight(&run.await.unwrap());
    });
}

#[test]
fn a_call_that_waits_repeats_a_refused_claim() {
    on_memory(async |world| {
        let (waiter, run) = waiting(&world).await;
        waiter.store.fail_before(StoreOperation::Claim, 1);
        ends_after(&world, ms(1_010), &run).await;
        assert_eq!(run.await.unwrap(), Outcome::Replayed);
    });
}

#[test]
fn a_call_that_waits_reports_a_store_that_refuses_each_claim() {
    on_memory(async |world| {
        let (waiter, run) = waiting(&world).await;
        waiter.store.fail_before(StoreOperation::Claim, FOREVER);
        ends_after(&world, ms(1_070), &run).await;
        assert!(matches!(run.await.unwrap(), Outcome::StoreDown(_)));
    });
}

#[test]
fn a_result_of_the_maximum_size_is_stored() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().max_result(5));
        for (result, outcome) in [("abc", Outcome::Replayed), ("abcd", Outcome::ConsumedWithoutResult)] {
            let run = async || {
                let handler = PlainHandler::new(|| async { Ok::<_, AppError>(result.to_owned()) });
                Outcome::capture(worker.executor.run(Call::new(id(result)), handler)).await.1.unwrap()
            };
            assert_eq!(run().await, Outcome::Ran);
            assert_eq!(run().await, outcome);
            assert_eq!(world.record(result).await.unwrap().state.kind(), StateKind::Consumed);
        }
    });
}
