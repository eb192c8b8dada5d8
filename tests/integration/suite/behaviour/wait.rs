//! Waiting for a run in flight, batches, draining, and runs that outlive their caller, on a virtual clock.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::common::{AppError, End, Job, PlainHandler, Worker, World, assert_in_flight, id, ms, secs};
use idempotent::store::StateKind;
use idempotent::{
    BatchItem, Call, Clock, Disposition, Executor, Fingerprint, Lease, OnInFlight, Outcome, Policy, Rejection,
};
use idempotent_testkit::StoreOperation;
use tokio::sync::Notify;

on_all_stores! {
    each_item_of_a_batch_is_settled_on_its_own
    a_batch_of_duplicates_does_not_call_the_handler
    a_batch_handler_that_answers_for_too_few_frees_all
    a_batch_handler_that_panics_frees_all
    a_waiter_gives_up_at_its_limit_and_touches_nothing
    one_waiter_takes_over_after_a_failure_of_the_owner
    a_waiter_takes_over_at_the_end_of_a_dead_owners_lease
    a_replay_is_what_the_first_run_answered
    a_run_dropped_before_it_starts_frees_its_key_and_its_attempt
    release_on_cancel_frees_the_key_of_a_run_that_started
    a_detached_run_outlives_its_caller_and_keeps_scope_and_lease
    hints_grow_with_each_deferral_and_never_pass_the_leases_end
}

type Items = Vec<(Call, &'static str)>;

fn batch(keys: &[&'static str]) -> Items {
    keys.iter().map(|key| (Call::new(id(key)), *key)).collect()
}

async fn run_batch(
    worker: &Worker,
    items: Items,
    seen: &Arc<std::sync::Mutex<Vec<&'static str>>>,
) -> Vec<(Outcome, Option<String>)> {
    let seen = seen.clone();
    let handler = PlainHandler::batch(move |items: Vec<BatchItem<&'static str>>| async move {
        seen.lock().unwrap().extend(items.iter().map(|given| given.item));
        items.iter().map(|given| Ok::<_, AppError>(format!("done {}", given.item))).collect()
    });
    let answers = worker.executor.run_batch(items, handler).await;
    answers.into_iter().map(|answer| (answer.outcome, answer.output.ok())).collect()
}

/// A duplicate in flight does not stop other messages.
async fn each_item_of_a_batch_is_settled_on_its_own(world: World) {
    let (worker, seen) = (world.worker("a", Policy::new()), Arc::default());
    assert_eq!(worker.outcome("b", &Job::takes(ms(0))).await, Outcome::Ran);
    let _held = worker.spawn("c", &Job::takes(secs(20))).await;
    let answers = run_batch(&worker, batch(&["a", "b", "c", "d", "a", ""]), &seen).await;
    assert_eq!(*seen.lock().unwrap(), ["a", "d"], "each once");
    let names: Vec<_> = answers.iter().map(|(outcome, _)| outcome.name()).collect();
    // "b" holds a number from the run before, no text: done, but its result is not of this type.
    assert_eq!(names, ["ran", "consumed_without_result", "in_flight", "ran", "replayed", "bad_key"]);
    assert_eq!(answers[4].1.as_deref(), Some("done a"), "the second `a` got the first one's result");
    let acked = answers.iter().filter(|(outcome, _)| outcome.disposition() == Disposition::Ack).count();
    assert_eq!(acked, 4);
    let again = run_batch(&worker, batch(&["d", "a"]), &seen).await;
    assert!(again.iter().all(|(outcome, _)| *outcome == Outcome::Replayed), "not run twice afterwards");

    // The same key with another payload is no duplicate, inside a batch either.
    let payload = |key, payload: &str| (Call::new(id(key)).fingerprint(Ok(Fingerprint::of_bytes(payload))), key);
    let answers = run_batch(&worker, vec![payload("e", "1"), payload("e", "2"), payload("e", "1")], &seen).await;
    let names: Vec<_> = answers.iter().map(|(outcome, _)| outcome.name()).collect();
    assert_eq!(names, ["ran", "mismatch", "replayed"]);
    let counts = worker.executor.counts();
    assert_eq!(counts.deliveries(), counts.ended() + 1, "one is held");
}

async fn a_batch_of_duplicates_does_not_call_the_handler(world: World) {
    let (worker, seen) = (world.worker("a", Policy::new()), Arc::default());
    run_batch(&worker, batch(&["a", "b"]), &seen).await;
    seen.lock().unwrap().clear();
    let called = Arc::new(AtomicU32::new(0));
    let handler = PlainHandler::batch({
        let called = called.clone();
        move |_: Vec<BatchItem<&'static str>>| async move {
            called.fetch_add(1, SeqCst);
            Vec::<Result<String, AppError>>::new()
        }
    });
    let answers = worker.executor.run_batch(batch(&["b", "a", "a"]), handler).await;
    assert!(answers.iter().all(|answer| answer.outcome == Outcome::Replayed));
    assert_eq!(called.load(SeqCst), 0);
}

async fn a_batch_handler_that_answers_for_too_few_frees_all(world: World) {
    let worker = world.worker("a", Policy::new());
    let handler =
        PlainHandler::batch(|_: Vec<BatchItem<&'static str>>| async { vec![Ok::<_, AppError>("one".to_owned())] });
    let answers = worker.executor.run_batch(batch(&["a", "b"]), handler).await;
    for answer in answers {
        assert!(matches!(answer.outcome, Outcome::Released { .. }));
        let Err(AppError::Idempotent(rejection)) = answer.output else { panic!("told as done") };
        assert!(matches!(rejection, Rejection::BatchAnswers { given: 2, answered: 1 }), "{rejection}");
    }
    assert_eq!(world.record("a").await.unwrap().state.kind(), StateKind::Vacant);
}

async fn a_batch_handler_that_panics_frees_all(world: World) {
    let worker = world.worker("a", Policy::new());
    let run = tokio::spawn({
        let worker = worker.clone();
        async move {
            let handler = PlainHandler::batch(|items: Vec<BatchItem<&'static str>>| async move {
                assert!(items.is_empty(), "as told");
                Vec::<Result<u32, AppError>>::new()
            });
            worker.executor.run_batch(batch(&["a", "b"]), handler).await.len()
        }
    });
    assert!(run.await.unwrap_err().is_panic());
    for key in ["a", "b"] {
        assert_eq!(worker.outcome(key, &Job::takes(ms(0))).await, Outcome::Ran);
    }
}

fn waiting(most: std::time::Duration) -> Policy {
    Policy::new().on_in_flight(OnInFlight::Wait(most))
}

/// A waiter stops at its limit, while the owner continues.
async fn a_waiter_gives_up_at_its_limit_and_touches_nothing(world: World) {
    let policy = waiting(ms(3100));
    let (a, b, c) = (world.worker("a", policy), world.worker("b", policy), world.worker("c", policy));
    let job = Job::takes(secs(5));
    let owner = a.spawn("k", &job).await;
    let waiter = b.spawn("k", &job).await;
    world.clock.advance(ms(3099)).await;
    assert!(!waiter.is_finished());
    let record = world.record("k").await.unwrap();
    world.clock.advance(ms(1)).await;
    assert_in_flight(&waiter.await.unwrap().0);
    assert_eq!(world.record("k").await.unwrap().fencing, record.fencing, "the owner's record is untouched");
    world.clock.advance(ms(300)).await;
    let late = c.spawn("k", &job).await;
    assert!(!late.is_finished(), "C waits too");
    world.clock.advance(ms(1650)).await;
    assert_eq!(owner.await.unwrap().0, Outcome::Ran);
    assert_eq!(late.await.unwrap().0, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
    assert!(
        world.asked(StoreOperation::Claim).len() < 200,
        "by notification, at most a look every 50 ms where there is none"
    );
}

/// A waiter never removes the claim of another one, and one waiter takes over.
async fn one_waiter_takes_over_after_a_failure_of_the_owner(world: World) {
    let policy = waiting(secs(9));
    let workers: Vec<_> = (0..5).map(|n| world.worker(&format!("waiter {n}"), policy)).collect();
    let owner = world.worker("owner", policy).spawn("k", &Job::ends(secs(1), End::Err)).await;
    let job = Job::takes(secs(2));
    let mut waiters = Vec::new();
    for worker in workers.iter().chain(&workers) {
        waiters.push(worker.spawn("k", &job).await);
    }
    world.clock.advance(secs(1)).await;
    assert!(matches!(owner.await.unwrap().0, Outcome::Released { .. }));
    world.clock.advance(ms(100)).await;
    world.until(|| job.runs() > 0).await;
    assert_eq!(job.runs(), 1, "exactly one, within 100 ms");
    world.clock.advance(secs(2)).await;
    let mut outcomes = Vec::new();
    for waiter in waiters {
        let (outcome, answer) = waiter.await.unwrap();
        assert_eq!(answer.unwrap(), 1);
        outcomes.push(outcome.name());
    }
    assert_eq!(outcomes.iter().filter(|name| **name == "ran").count(), 1);
    assert_eq!(outcomes.iter().filter(|name| **name == "replayed").count(), 9);
}

async fn a_waiter_takes_over_at_the_end_of_a_dead_owners_lease(world: World) {
    let policy = waiting(secs(9)).lease(secs(2));
    let (a, b) = (world.worker("a", policy), world.worker("b", policy));
    let owner = a.spawn("k", &Job::takes(secs(60))).await;
    let job = Job::takes(ms(0));
    let waiter = b.spawn("k", &job).await;
    a.kill(owner).await;
    world.clock.advance(ms(1999)).await;
    assert_eq!(job.runs(), 0);
    world.clock.advance(ms(51)).await;
    assert_eq!(waiter.await.unwrap().0, Outcome::Ran);
}

/// A duplicate receives the result.
async fn a_replay_is_what_the_first_run_answered(world: World) {
    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Receipt {
        id: u64,
        note: Option<String>,
        nested: Vec<(u8, String)>,
    }
    let worker = world.worker("a", Policy::new());
    let receipt = Receipt { id: 7, note: None, nested: vec![(1, "ünï\0".into())] };
    for outcome in [Outcome::Ran, Outcome::Replayed] {
        let answer = receipt.clone();
        let handler = PlainHandler::new(move || async move { Ok::<_, AppError>(answer) });
        let run = worker.executor.run(Call::new(id("receipt")), handler);
        let (answer, told) = Outcome::capture(run).await;
        assert_eq!((answer.unwrap(), told), (receipt.clone(), Some(outcome.clone())));
        let none = PlainHandler::new(|| async { Ok::<Option<u8>, AppError>(None) });
        let run = worker.executor.run(Call::new(id("none")), none);
        let (answer, told) = Outcome::capture(run).await;
        assert_eq!((answer.unwrap(), told), (None, Some(outcome.clone())));
        let unit = PlainHandler::new(|| async { Disposition::Ack });
        let (answer, told) = Outcome::capture(worker.executor.run(Call::new(id("unit")), unit)).await;
        assert_eq!((answer, told), (Disposition::Ack, Some(outcome)));
    }
}

async fn a_run_dropped_before_it_starts_frees_its_key_and_its_attempt(world: World) {
    let worker = world.worker("a", Policy::new());
    worker.store.hang(StoreOperation::Claim, 1);
    let job = Job::takes(ms(0));
    let run = worker.spawn("k", &job).await;
    run.abort();
    run.await.unwrap_err();
    world.clock.settle().await;
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(job.attempts(), [1]);
    assert_eq!(worker.executor.counts().of("cancelled"), 1);
}

async fn release_on_cancel_frees_the_key_of_a_run_that_started(world: World) {
    let worker = world.worker("a", Policy::new().release_on_cancel(true));
    let run = worker.spawn("k", &Job::takes(secs(60))).await;
    run.abort();
    run.await.unwrap_err();
    world.clock.settle().await;
    let job = Job::takes(ms(0));
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(job.attempts(), [2]);
}

async fn a_detached_run_outlives_its_caller_and_keeps_scope_and_lease(world: World) {
    let worker = world.worker("a", Policy::new());
    let done = Arc::new(Notify::new());
    let run = {
        let (executor, clock, done) = (worker.executor.clone(), world.clock.clone(), done.clone());
        let call = Executor::detach(async move {
            let handler = PlainHandler::new(move || async move {
                clock.sleep_until(clock.now() + secs(5)).await;
                assert!(Executor::current().is_some());
                done.notify_one();
                Ok::<_, AppError>(Lease::current().unwrap().attempt())
            });
            let current = Executor::current().unwrap();
            current.run(Call::new(id("k")), handler).await
        });
        tokio::spawn(async move { executor.scope(call).await.is_ok() })
    };
    world.clock.advance(secs(1)).await;
    run.abort();
    run.await.unwrap_err();
    world.clock.advance(secs(4)).await;
    done.notified().await;
    world.clock.settle().await;
    assert_eq!(worker.outcome("k", &Job::takes(ms(0))).await, Outcome::Replayed);
}

async fn hints_grow_with_each_deferral_and_never_pass_the_leases_end(world: World) {
    let worker = world.worker("a", Policy::new().lease(secs(30)));
    let _held = worker.spawn("k", &Job::takes(secs(300))).await;
    let mut hints = Vec::new();
    for _ in 0..6 {
        hints.push(crate::common::retry_after(&worker.outcome("k", &Job::takes(ms(0))).await).as_secs());
    }
    assert_eq!(hints, [1, 2, 4, 8, 10, 10]);
    let dying = world.worker("b", Policy::new().lease(secs(30)));
    let run = dying.spawn("dead", &Job::takes(secs(300))).await;
    dying.kill(run).await;
    world.clock.advance(ms(29_600)).await;
    assert_eq!(
        crate::common::retry_after(&worker.outcome("dead", &Job::takes(ms(0))).await),
        ms(400),
        "the lease's end"
    );
}
