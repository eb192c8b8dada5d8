//! Leases on a virtual clock: who may run, and what becomes of a worker that dies, stalls or is overtaken.
use std::sync::Arc;

use crate::common::{End, Job, PlainHandler, World, assert_in_flight, id, key_of, ms, secs};
use idempotent::store::{ClaimHandle, OwnerToken, Settled, StateKind};
use idempotent::{
    Call, Clock, Disposition, Executor, Identity, MemoryStore, OnLeaseLost, Outcome, Policy, Rejection, Scene, Store,
};
use idempotent_testkit::{FOREVER, StoreOperation, VirtualClock};

on_all_stores! {
    a_consumed_key_is_remembered_for_its_retention
    a_key_retained_for_ever_never_runs_again
    the_marker_is_written_by_one_command_and_always_expires
    a_duplicate_in_flight_is_retried_later_and_is_done_then
    a_panic_frees_the_key_at_once_and_a_dropped_run_frees_it_after_the_lease
    a_killed_worker_is_taken_over_at_the_end_of_its_lease
    a_heartbeat_carries_a_long_run_also_over_a_failed_renewal
    an_owner_that_was_overtaken_neither_deletes_nor_succeeds
    a_handler_that_outlives_its_lease_is_dropped
    a_stale_success_is_refused_and_nothing_is_lost
    fencing_numbers_rise_over_release_expiry_and_deletion
    a_wrong_client_clock_changes_nothing
    max_run_ends_a_run_that_never_ends
    a_manual_lease_is_renewed
    a_claim_that_took_too_long_is_given_back
}

/// The expiry of the marker and the retention of the record are separate.
async fn a_consumed_key_is_remembered_for_its_retention(world: World) {
    let policy = Policy::new().lease(secs(600)).max_run(secs(600)).retain(secs(3600));
    let (worker, job) = (world.worker("a", policy), Job::takes(ms(200)));
    let first = worker.spawn("k", &job).await;
    world.clock.advance(ms(200)).await;
    assert_eq!(first.await.unwrap().0.disposition(), Disposition::Ack);
    assert_eq!(world.record("k").await.unwrap().state.kind(), StateKind::Consumed);
    assert_eq!(world.ttl("k").await, Some(secs(3600)));

    world.clock.advance(secs(3599) - ms(200)).await;
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
    world.clock.advance(secs(2)).await;
    let again = worker.spawn("k", &job).await;
    world.clock.advance(ms(200)).await;
    assert_eq!(again.await.unwrap().0, Outcome::Ran);
    assert_eq!(job.runs(), 2);
}

async fn a_key_retained_for_ever_never_runs_again(world: World) {
    let (worker, job) = (world.worker("a", Policy::new().retain(Policy::FOREVER)), Job::takes(ms(0)));
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(world.ttl("k").await, Some(std::time::Duration::MAX));
    world.clock.advance(secs(30 * 24 * 3600)).await;
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// The first delivery is not a duplicate of its own marker. Each key expires. The completion finds the marker of its
/// own claim.
async fn the_marker_is_written_by_one_command_and_always_expires(world: World) {
    let (worker, job) = (world.worker("a", Policy::new().lease(secs(30))), Job::takes(secs(25)));
    let run = worker.spawn("k", &job).await;
    world.clock.advance(ms(100)).await;
    assert_eq!(world.asked(StoreOperation::Claim).len(), 1, "one command");
    for _ in 0..4 {
        let record = world.record("k").await.unwrap();
        let idempotent::store::State::Consuming { until, .. } = record.state else { panic!("{record:?}") };
        assert!(until <= world.clock.wall() + secs(30));
        assert!(record.expires_at >= until, "the record lives as long as its lease");
        assert!(record.expires_at < idempotent::Timestamp::FOREVER);
        world.clock.advance(secs(6)).await;
    }
    world.clock.advance(secs(1)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
}

/// A duplicate in flight does not run, and a rejected delivery deletes no record.
async fn a_duplicate_in_flight_is_retried_later_and_is_done_then(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(secs(3)));
    let first = worker.spawn("k", &job).await;
    world.clock.advance(secs(1)).await;
    let before = world.clock.elapsed();
    let duplicate = world.worker("b", Policy::new()).outcome("k", &job).await;
    assert_in_flight(&duplicate);
    assert_eq!(world.clock.elapsed(), before, "answered at once");
    assert!(crate::common::retry_after(&duplicate) <= secs(1), "a short handler costs its duplicate little");
    world.clock.advance(secs(10)).await;
    assert_eq!(first.await.unwrap().0, Outcome::Ran);
    assert_eq!(worker.outcome("k", &job).await.disposition(), Disposition::Ack);
    assert_eq!(job.runs(), 1);
}

async fn a_panic_frees_the_key_at_once_and_a_dropped_run_frees_it_after_the_lease(world: World) {
    let lease = secs(2);
    let worker = world.worker("a", Policy::new().lease(lease));
    let panics = Job::ends(ms(100), End::Panic);
    let run = worker.spawn("panics", &panics).await;
    world.clock.advance(ms(100)).await;
    assert!(run.await.unwrap_err().is_panic());
    assert_eq!(worker.outcome("panics", &Job::takes(ms(0))).await, Outcome::Ran, "the process continues");

    for (key, how) in [("dropped", "abort"), ("timeout", "timeout")] {
        let slow = Job::takes(secs(60));
        let (again, key_, slow_) = (worker.clone(), key.to_owned(), slow.clone());
        let clock = world.clock.clone();
        let deadline = clock.now() + ms(100);
        let run = tokio::spawn(async move {
            tokio::select! {
                () = clock.sleep_until(deadline) => {}
                _ = again.deliver(&key_, &slow_) => {}
            }
        });
        world.clock.settle().await;
        if how == "abort" {
            world.clock.advance(ms(99)).await;
            run.abort();
            world.clock.advance(ms(1)).await;
        } else {
            world.clock.advance(ms(100)).await;
        }
        assert_eq!(slow.runs(), 1);
        assert_in_flight(&worker.outcome(key, &slow).await);
        world.clock.advance(lease).await;
        assert_eq!(worker.outcome(key, &Job::takes(ms(0))).await, Outcome::Ran, "{how}");
    }
    assert_eq!(worker.executor.counts().of("abandoned"), 2);
}

async fn a_killed_worker_is_taken_over_at_the_end_of_its_lease(world: World) {
    let policy = Policy::new().lease(secs(2));
    let (a, b) = (world.worker("a", policy), world.worker("b", policy));
    let slow = Job::takes(secs(60));
    let run = a.spawn("k", &slow).await;
    world.clock.advance(ms(100)).await;
    a.kill(run).await;
    world.clock.advance(ms(1899)).await;
    assert_in_flight(&b.outcome("k", &slow).await);
    assert!(world.record("k").await.is_some(), "visible or claimable, at every instant");
    world.clock.advance(ms(1)).await;
    assert!(world.record("k").await.is_some());
    let quick = Job::takes(ms(0));
    assert_eq!(b.outcome("k", &quick).await, Outcome::Ran);
    assert_eq!(quick.attempts(), [2]);
    assert!(quick.fencing()[0] > slow.fencing()[0]);
}

/// A handler that is longer than its lease does not run twice.
async fn a_heartbeat_carries_a_long_run_also_over_a_failed_renewal(world: World) {
    let policy = Policy::new().lease(secs(1)).heartbeat(ms(333));
    let (a, b) = (world.worker("a", policy), world.worker("b", policy));
    let job = Job::takes(ms(3500));
    a.store.pass(StoreOperation::Renew, 2);
    a.store.fail_before(StoreOperation::Renew, 1);
    let run = a.spawn("k", &job).await;
    for at in [500u64, 1500, 2500, 3400] {
        world.clock.advance(ms(at) - world.clock.elapsed()).await;
        assert_in_flight(&b.outcome("k", &job).await);
    }
    world.clock.advance(ms(300)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(b.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
    // The renewal at 999 ms failed and did not end later renewals.
    assert_eq!(world.asked(StoreOperation::Renew)[..4], [333, 666, 999, 1332]);
}

/// M1: A runs for longer than its lease and its heartbeat is stuck; B takes over; A's end must not touch B's marker.
async fn an_owner_that_was_overtaken_neither_deletes_nor_succeeds(world: World) {
    for a_ends in [End::Err, End::Ok] {
        let key = if matches!(a_ends, End::Err) { "fails" } else { "succeeds" };
        let policy = Policy::new().lease(secs(1)).on_lease_lost(OnLeaseLost::Finish);
        let (a, b, c) = (world.worker("a", policy), world.worker("b", policy), world.worker("c", policy));
        a.store.lose_request(StoreOperation::Renew, FOREVER);
        let (first, second) = (Job::ends(ms(1600), a_ends), Job::takes(ms(900)));
        let run_a = a.spawn(key, &first).await;
        world.clock.advance(ms(1200)).await;
        let run_b = b.spawn(key, &second).await;
        world.clock.advance(ms(600)).await;
        // Handler A ended at 1.6 s.
        let (outcome, answer) = run_a.await.unwrap();
        assert_eq!(outcome, Outcome::LeaseLost);
        if let Ok(value) = answer {
            panic!("told as success: {value}");
        }
        assert_in_flight(&c.outcome(key, &second).await);
        world.clock.advance(ms(300)).await;
        assert_eq!(run_b.await.unwrap().0, Outcome::Ran);
        // A's message is retried, and ends as a duplicate.
        assert_eq!(outcome.disposition(), Disposition::Retry { after: secs(1) });
        assert_eq!(c.outcome(key, &second).await, Outcome::Replayed);
        assert_eq!(first.runs() + second.runs(), 2);
    }
}

async fn a_handler_that_outlives_its_lease_is_dropped(world: World) {
    let worker = world.worker("a", Policy::new().lease(secs(1)));
    worker.store.fail_before(StoreOperation::Renew, FOREVER);
    let job = Job::takes(secs(60));
    let run = worker.spawn("k", &job).await;
    world.clock.advance(ms(899)).await;
    assert!(!run.is_finished());
    world.clock.advance(ms(1)).await;
    let (outcome, answer) = run.await.unwrap();
    assert_eq!(outcome, Outcome::LeaseLost, "at the guard: a tenth before the lease's end");
    assert!(matches!(answer, Err(crate::common::AppError::Idempotent(Rejection::LeaseLost))));
    assert_eq!(world.record("k").await.unwrap().state.kind(), StateKind::Consuming, "left to its lease");
}

/// M1b, and B killed on top.
async fn a_stale_success_is_refused_and_nothing_is_lost(world: World) {
    let policy = Policy::new().lease(secs(1)).on_lease_lost(OnLeaseLost::Finish);
    let (a, b, d) = (world.worker("a", policy), world.worker("b", policy), world.worker("d", policy));
    a.store.lose_request(StoreOperation::Renew, FOREVER);
    let (first, second) = (Job::takes(ms(1600)), Job::takes(secs(60)));
    let run_a = a.spawn("k", &first).await;
    world.clock.advance(ms(1200)).await;
    let run_b = b.spawn("k", &second).await;
    let b_until = world.clock.elapsed() + secs(1);
    world.clock.advance(ms(400)).await;
    assert_eq!(run_a.await.unwrap().0, Outcome::LeaseLost, "the record stays B's");
    assert_eq!(world.record("k").await.unwrap().state.kind(), StateKind::Consuming);
    world.clock.advance(ms(100)).await;
    b.kill(run_b).await;

    // A stale heartbeat of A's does not extend B's lease.
    let last = world.record("k").await.unwrap();
    let stale = ClaimHandle::unanswered(key_of("k"), OwnerToken(1));
    assert_eq!(world.store.renew(&stale, secs(60)).await.unwrap(), Settled::Lost { now: StateKind::Consuming });
    assert_eq!(world.record("k").await.unwrap(), last);

    // B renewed at 333 ms of its run, that is at 1533 ms; its lease ends a second later.
    let quick = Job::takes(ms(0));
    world.clock.advance(b_until + ms(332) - world.clock.elapsed()).await;
    assert_in_flight(&d.outcome("k", &quick).await);
    world.clock.advance(ms(2)).await;
    assert_eq!(d.outcome("k", &quick).await, Outcome::Ran, "not lost");
}

async fn fencing_numbers_rise_over_release_expiry_and_deletion(world: World) {
    let job = Job::ends(ms(0), End::Err);
    // With a retry limit the record stays vacant; without, it is deleted; in the same instant both.
    for policy in [Policy::new(), Policy::new().max_retries(Policy::NO_LIMIT)] {
        let worker = world.worker("a", policy.lease(secs(2)));
        for _ in 0..3 {
            assert!(matches!(worker.outcome("k", &job).await, Outcome::Released { .. }));
        }
        let dead = world.worker("dies", policy.lease(secs(2)));
        let slow = Job::takes(secs(60));
        let run = dead.spawn("k", &slow).await;
        job.attempts.lock().unwrap().extend(slow.attempts.lock().unwrap().iter());
        dead.kill(run).await;
        world.clock.advance(secs(2)).await;
        assert!(matches!(worker.outcome("k", &job).await, Outcome::Released { .. }));
    }
    let numbers = job.fencing();
    assert_eq!(numbers.len(), 10);
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(numbers.iter().all(|number| *number < 1 << 53));

    // A resource that keeps the highest number refuses the one that was overtaken.
    let mut highest = 0;
    let mut write = |number: u64| {
        let accepted = number >= highest;
        highest = highest.max(number);
        accepted
    };
    assert!(write(numbers[1]));
    assert!(!write(numbers[0]), "A's write after B's");
}

/// The store's clock decides.
async fn a_wrong_client_clock_changes_nothing(world: World) {
    const MINUTES: i64 = 300_000_000;
    for (first, second) in
        [(0, MINUTES), (0, -MINUTES), (MINUTES, 0), (-MINUTES, 0), (MINUTES, -MINUTES), (-MINUTES, MINUTES)]
    {
        let (policy, key) = (Policy::new().lease(secs(2)), &*format!("{first} {second}"));
        let worker = |name, skew| {
            let clock = Arc::new(world.clock.skewed(skew));
            world.worker_by(name, policy, |builder| builder.clock(clock))
        };
        let (a, b) = (worker("a", first), worker("b", second));
        let slow = Job::takes(secs(60));
        let run = a.spawn(key, &slow).await;
        world.clock.advance(ms(100)).await;
        a.kill(run).await;
        world.clock.advance(ms(1800)).await;
        assert_in_flight(&b.outcome(key, &slow).await);
        world.clock.advance(ms(200)).await;
        assert_eq!(b.outcome(key, &Job::takes(ms(0))).await, Outcome::Ran, "{key}");
    }
}

async fn max_run_ends_a_run_that_never_ends(world: World) {
    let policy = Policy::new().lease(secs(9));
    let (a, b) = (world.worker("a", policy), world.worker("b", policy));
    let job = Job::takes(secs(100_000));
    let run = a.spawn("k", &job).await;
    world.clock.advance(secs(590)).await;
    assert_in_flight(&b.outcome("k", &job).await);
    world.clock.advance(secs(20)).await;
    assert_eq!(run.await.unwrap().0, Outcome::LeaseLost);
    assert_eq!(b.outcome("k", &Job::takes(ms(0))).await, Outcome::Ran);
}

async fn a_manual_lease_is_renewed(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(secs(20)));
    let call = Call::new(id("k")).policy(Policy::new().lease(secs(6)));
    let run = tokio::spawn({
        let (worker, job) = (worker.clone(), job.clone());
        async move { worker.deliver_call(call, &job).await }
    });
    world.clock.advance(secs(20)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert!(world.asked(StoreOperation::Renew).len() >= 8, "every 2 s");
}

async fn a_claim_that_took_too_long_is_given_back(world: World) {
    let worker = world.worker("a", Policy::new().lease(secs(3)));
    // Each try is given up after a second; the answer of the first two never comes, that of the third does.
    worker.store.hang(StoreOperation::Claim, 2);
    let job = Job::takes(ms(0));
    let run = worker.spawn("k", &job).await;
    world.clock.advance(secs(10)).await;
    let (outcome, _) = run.await.unwrap();
    assert!(matches!(outcome, Outcome::StoreDown(_) | Outcome::LeaseLost), "{outcome:?}");
    assert_eq!(job.runs(), 0, "a lease that may have ended is not run under");
    world.clock.settle().await;
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran, "the key was given back");
    assert_eq!(job.attempts(), [1], "and no attempt counted");
}

/// The clock does not move: nothing but the drop can end the task.
#[tokio::test]
async fn a_dropped_executor_ends_its_task_and_releases_its_store_at_once() {
    let clock = Arc::new(VirtualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let executor = Executor::builder(store).clock(clock).build().unwrap();
    for order in ["o-17", "o-18"] {
        let call = Call::new(Identity::new(Scene::Mq, "orders", order));
        let handler = async || {
            tokio::task::yield_now().await;
            Ok::<_, Rejection>(42)
        };
        executor.run(call, PlainHandler::new(handler)).await.unwrap();
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 1, "the task that renews leases");
    drop(executor);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tasks(), 0);
}
