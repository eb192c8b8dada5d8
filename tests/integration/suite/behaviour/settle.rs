//! The ends of runs on a virtual clock: failures, unresponsive stores, changed payloads, nested runs, attempts.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::common::{AppError, End, Job, PlainHandler, World, assert_in_flight, id, ms, retry_after, secs};
use idempotent::reply::{DefaultReply, HandlerOutcome, RejectStrategy, ReplyStrategy, ResponseShape};
use idempotent::store::StateKind;
use idempotent::{
    Call, Clock, Disposition, Fingerprint, Handler, Json, OnLeaseLost, OnStoreError, Outcome, Policy, Redelivery,
    Rejection, Scene, StoreErrorKind,
};
use idempotent_testkit::{FOREVER, StoreOperation};

on_all_stores! {
    a_failed_run_frees_the_key_before_its_message_is_requeued
    a_business_failure_is_never_consumed
    a_flip_that_fails_once_is_retried
    a_flip_that_fails_for_ever_is_unrecorded_never_acked_never_released
    a_completion_with_a_lost_response_is_done
    an_unrecorded_result_is_answered_by_a_strategy_with_a_waiting_caller
    while_the_store_is_down_nothing_runs
    unprotected_runs_are_a_choice_and_counted
    a_claim_with_a_lost_response_is_repeated_with_the_same_token
    a_changed_payload_is_refused_in_flight_and_consumed
    a_dead_workers_key_outlasts_many_deferrals_which_are_free
    a_handler_that_always_fails_runs_17_times_and_is_buried
    the_outcomes_add_up_to_the_deliveries
    a_message_that_kills_its_process_is_buried_as_crashed
    a_finished_duplicate_is_always_acked
    a_result_that_cannot_be_kept_is_consumed_without_it
}

/// A failure is not stored as done, and the key can be claimed again.
async fn a_failed_run_frees_the_key_before_its_message_is_requeued(world: World) {
    for (key, policy) in [("vacant", Policy::new()), ("absent", Policy::new().max_retries(Policy::NO_LIMIT))] {
        let (worker, job) = (world.worker("a", policy), Job::ends(ms(200), End::Err));
        let run = worker.spawn(key, &job).await;
        world.clock.advance(ms(200)).await;
        let (outcome, answer) = run.await.unwrap();
        // By the time anybody can requeue it, the marker is gone.
        let released = world.store.log().into_iter().rfind(|call| call.verb == StoreOperation::Release).unwrap();
        assert!(released.ended.is_some(), "released before the outcome was told");
        assert!(!matches!(world.record(key).await.map(|r| r.state.kind()), Some(StateKind::Consuming)));
        assert_eq!(world.record(key).await.is_none(), key == "absent");
        assert!(matches!(outcome, Outcome::Released { .. }) && answer.is_err());
        world.clock.advance(ms(1)).await;
        let again = worker.spawn(key, &job).await;
        world.clock.advance(ms(200)).await;
        drop(again.await.unwrap());
        assert_eq!(job.runs(), 2);
    }
}

/// An unsuccessful result without an error is not done either.
async fn a_business_failure_is_never_consumed(world: World) {
    let worker = world.worker("a", Policy::new());
    let runs = Arc::new(AtomicU32::new(0));
    let deliver = async |declined: bool| {
        let runs = runs.clone();
        let handler = PlainHandler::new(move || async move {
            runs.fetch_add(1, SeqCst);
            Ok::<_, Rejection>(declined)
        });
        let run = worker.executor.run(Call::new(id("k")), handler.failed_if(|declined| *declined));
        Outcome::capture(run).await
    };
    let (answer, outcome) = deliver(true).await;
    assert!(answer.unwrap(), "the caller gets the value");
    assert!(matches!(outcome, Some(Outcome::Released { .. })));
    assert_eq!(world.record("k").await.unwrap().state.kind(), StateKind::Vacant);
    assert_eq!(deliver(false).await.1, Some(Outcome::Ran));
    assert_eq!(deliver(true).await.1, Some(Outcome::Replayed));
    assert_eq!(runs.load(SeqCst), 2);
}

/// The error of a completion is reported.
async fn a_flip_that_fails_once_is_retried(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    worker.store.fail_before(StoreOperation::Complete, 1);
    let run = worker.spawn("k", &job).await;
    world.clock.advance(ms(10)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// A store error never lets a handler run unprotected.
async fn a_flip_that_fails_for_ever_is_unrecorded_never_acked_never_released(world: World) {
    let policy = Policy::new().lease(secs(9));
    let (a, b) = (world.worker("a", policy), world.worker("b", policy));
    a.store.fail_before(StoreOperation::Complete, FOREVER);
    let job = Job::takes(secs(1));
    let run = a.spawn("k", &job).await;
    world.clock.advance(secs(8)).await;
    assert!(!run.is_finished(), "tried until the guard");
    world.clock.advance(ms(100)).await;
    let (outcome, answer) = run.await.unwrap();
    assert_eq!(outcome, Outcome::Unrecorded);
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Unrecorded { cause: Some(_) }))));
    assert!(matches!(outcome.disposition(), Disposition::Retry { .. }), "never acked");
    assert!(world.asked(StoreOperation::Release).is_empty(), "never released");
    assert_in_flight(&b.outcome("k", &job).await);
    world.clock.advance(secs(1)).await;
    let again = b.spawn("k", &job).await;
    world.clock.advance(secs(1)).await;
    assert_eq!(again.await.unwrap().0, Outcome::Ran);
    assert_eq!(job.runs(), 2, "crash point 6 given up");
}

async fn a_completion_with_a_lost_response_is_done(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    worker.store.lose_reply(StoreOperation::Complete, 2);
    let run = worker.spawn("k", &job).await;
    world.clock.advance(ms(100)).await;
    let (outcome, answer) = run.await.unwrap();
    assert_eq!((outcome, answer.unwrap()), (Outcome::Ran, 1));
}

/// A waiting caller receives the available answer, and the delivery is settled as usual.
async fn an_unrecorded_result_is_answered_by_a_strategy_with_a_waiting_caller(world: World) {
    struct Waiting;
    impl ResponseShape for Waiting {
        type Output<R> = R;
    }
    impl ReplyStrategy<Result<u32, AppError>> for Waiting {
        type Value = u32;
        type Failure = AppError;
        async fn split(reply: Result<u32, AppError>) -> HandlerOutcome<u32, AppError> {
            DefaultReply::split(reply).await
        }
        fn value(value: u32) -> Result<u32, AppError> {
            Ok(value)
        }
        fn replayed(value: u32) -> Result<u32, AppError> {
            Ok(value)
        }
        fn failure(failure: AppError) -> Result<u32, AppError> {
            Err(failure)
        }
        fn unrecorded(value: u32, rejection: Rejection) -> Result<Result<u32, AppError>, Rejection> {
            // The answer does not apply if another worker may be running.
            if matches!(rejection, Rejection::LeaseLost) { Err(rejection) } else { Ok(Ok(value + 100)) }
        }
    }
    impl RejectStrategy<Result<u32, AppError>> for Waiting {
        fn rejected(rejection: Rejection) -> Result<u32, AppError> {
            Err(rejection.into())
        }
    }
    let begin = async |name: &str| {
        let policy = Policy::new().lease(secs(3)).max_run(secs(3)).on_lease_lost(OnLeaseLost::Finish);
        let (worker, key) = (world.worker(name, policy), name.to_owned());
        let (executor, clock) = (worker.executor.clone(), world.clock.clone());
        let run = tokio::spawn(async move {
            let handler = Handler::<Waiting, Json, _, _>::new(|| async {
                clock.sleep_until(clock.now() + secs(5)).await;
                Ok::<u32, AppError>(1)
            });
            Outcome::capture(executor.run(Call::new(id(&key)), handler)).await
        });
        world.clock.settle().await;
        (worker, run)
    };
    let (worker, run) = begin("unheard").await;
    worker.store.fail_before(StoreOperation::Complete, FOREVER);
    world.clock.advance(secs(6)).await;
    let (answer, outcome) = run.await.unwrap();
    assert_eq!((answer.unwrap(), outcome), (101, Some(Outcome::Unrecorded)));

    let (worker, run) = begin("taken over").await;
    worker.store.fail_before(StoreOperation::Renew, FOREVER);
    world.clock.advance(secs(4)).await;
    let second = world.worker("second", Policy::new());
    assert_eq!(second.outcome("taken over", &Job::takes(ms(0))).await, Outcome::Ran);
    world.clock.advance(secs(2)).await;
    let (answer, outcome) = run.await.unwrap();
    assert_eq!(outcome, Some(Outcome::LeaseLost));
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::LeaseLost))), "given back, and told in its place");
}

/// No error counts as a duplicate, and the memory and SQL stores behave equally.
async fn while_the_store_is_down_nothing_runs(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    worker.store.down();
    let run = worker.spawn("k", &job).await;
    world.clock.advance(secs(1)).await;
    let (outcome, answer) = run.await.unwrap();
    assert_eq!(outcome, Outcome::StoreDown(StoreErrorKind::NotApplied));
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Store(_)))));
    assert_eq!((job.runs(), retry_after(&outcome)), (0, secs(1)));
    worker.store.up();
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
}

async fn unprotected_runs_are_a_choice_and_counted(world: World) {
    let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
    let (worker, job) = (world.worker("a", policy), Job::takes(ms(0)));
    worker.store.down();
    let run = worker.spawn("k", &job).await;
    world.clock.advance(secs(1)).await;
    let (outcome, answer) = run.await.unwrap();
    assert_eq!((outcome, answer.unwrap(), job.runs()), (Outcome::Unprotected, 1, 1));
    assert_eq!(worker.executor.counts().of("unprotected"), 1);
    assert!(job.attempts().is_empty(), "there was no lease");
}

async fn a_claim_with_a_lost_response_is_repeated_with_the_same_token(world: World) {
    for (key, lose) in [("applied", true), ("not applied", false)] {
        let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
        if lose {
            worker.store.lose_reply(StoreOperation::Claim, 1);
        } else {
            worker.store.lose_request(StoreOperation::Claim, 1);
        }
        let run = worker.spawn(key, &job).await;
        world.clock.advance(ms(10)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran, "not in flight for a whole lease");
        assert_eq!(job.attempts(), [1], "counted at claim, and once");
    }
    let owners: Vec<_> =
        world.store.log().iter().filter(|c| c.verb == StoreOperation::Claim).map(|c| c.owner).collect();
    assert_eq!((owners[0], owners[2]), (owners[1], owners[3]));
    assert_ne!(owners[0], owners[2], "a token is never shared");
}

/// The key is the business key, and the payload is compared.
async fn a_changed_payload_is_refused_in_flight_and_consumed(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(100)));
    let call = |payload: &str| Call::new(id("k")).fingerprint(Ok(Fingerprint::of_bytes(payload)));
    let first = tokio::spawn({
        let (worker, job, call) = (worker.clone(), job.clone(), call("one"));
        async move { worker.deliver_call(call, &job).await.0 }
    });
    world.clock.settle().await;
    assert_eq!(worker.deliver_call(call("two"), &job).await.0, Outcome::Mismatch);
    world.clock.advance(ms(100)).await;
    assert_eq!(first.await.unwrap(), Outcome::Ran);
    let (outcome, answer) = worker.deliver_call(call("two"), &job).await;
    assert_eq!(outcome, Outcome::Mismatch);
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Mismatch))));
    assert_eq!(worker.deliver_call(call("one"), &job).await.0, Outcome::Replayed);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed, "no fingerprint: nothing to compare");
    assert_eq!(job.runs(), 1);
}

/// M11: a marker of 600 s left by a crash, against `RocketMQ`'s delays.
async fn a_dead_workers_key_outlasts_many_deferrals_which_are_free(world: World) {
    let policy = Policy::new().lease(secs(600)).max_run(secs(600));
    let (a, b) = (world.worker("a", policy), world.worker("b", policy));
    let slow = Job::takes(secs(9999));
    let run = a.spawn("k", &slow).await;
    a.kill(run).await;
    let (job, mut deferrals) = (Job::takes(ms(0)), 0);
    for delay in [10, 30, 60, 120, 180, 240] {
        world.clock.advance(secs(delay)).await;
        match b.outcome("k", &job).await {
            Outcome::Ran => break,
            outcome => {
                assert_in_flight(&outcome);
                deferrals += 1;
            }
        }
    }
    assert_eq!((deferrals, world.clock.elapsed(), job.attempts()), (5, secs(640), vec![2]));

    // A schedule that is used up before the marker dies is refused at the start, with both numbers.
    let schedule = || Redelivery::after([1, 5, 30, 300].map(secs));
    let error = policy.check_against(&Scene::Mq, &schedule()).unwrap_err().to_string();
    assert!(error.contains("10m") && error.contains("5m 36s"), "{error}");
    policy.check_against(&Scene::Mq, &schedule().deferrals_are_free()).unwrap();
}

async fn a_handler_that_always_fails_runs_17_times_and_is_buried(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::ends(ms(0), End::Err));
    for attempt in 1..=16 {
        assert!(matches!(worker.outcome("k", &job).await, Outcome::Released { .. }), "{attempt}");
        world.clock.advance(secs(1)).await;
    }
    let Outcome::Dead { fencing } = worker.outcome("k", &job).await else { panic!("the 17th run buries at once") };
    assert_eq!(job.runs(), 17);
    assert!(matches!(Outcome::Dead { fencing }.disposition(), Disposition::DeadLetter { .. }));
    let (outcome, answer) = worker.deliver("k", &job).await;
    assert_eq!(outcome, Outcome::Dead { fencing }, "copies of the dead letter collapse");
    let Err(AppError::Idempotent(Rejection::Dead { attempts: 17, error, .. })) = answer else { panic!("{answer:?}") };
    assert!(error.contains("AppError"), "{error}");
    assert_eq!(job.runs(), 17, "a later duplicate does not run");
}

async fn the_outcomes_add_up_to_the_deliveries(world: World) {
    let worker = world.worker("a", Policy::new().max_retries(1).lease(secs(2)));
    let (ok, err) = (Job::takes(ms(10)), Job::ends(ms(0), End::Err));
    let first = worker.spawn("ok", &ok).await;
    worker.outcome("ok", &ok).await; // in flight
    world.clock.advance(ms(10)).await;
    drop(first.await.unwrap());
    worker.outcome("ok", &ok).await; // replayed
    for _ in 0..3 {
        worker.outcome("err", &err).await; // released, dead, dead
    }
    let dropped = worker.spawn("dropped", &Job::takes(secs(99))).await;
    dropped.abort();
    dropped.await.unwrap_err();
    let panics = worker.spawn("panics", &Job::ends(ms(0), End::Panic)).await;
    panics.await.unwrap_err();
    drop(worker.deliver_call(Call::new(id("")), &ok).await); // bad key
    let counts = worker.executor.counts();
    assert_eq!((counts.deliveries(), counts.ended()), (9, 9));
    let some: Vec<_> = counts.iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(
        some,
        [("ran", 1), ("replayed", 1), ("released", 2), ("in_flight", 1), ("abandoned", 1), ("dead", 2), ("bad_key", 1)]
    );
}

/// A claim counts an attempt, so a message that kills its process is not run forever.
async fn a_message_that_kills_its_process_is_buried_as_crashed(world: World) {
    let policy = Policy::new().max_retries(2).lease(secs(2));
    let mut deaths = 0;
    let mut delivery = 0;
    loop {
        delivery += 1;
        let (worker, job) = (world.worker(&format!("process {delivery}"), policy), Job::takes(secs(99)));
        let mut run = worker.spawn("k", &job).await;
        if job.runs() == 1 {
            deaths += 1;
            worker.kill(run).await;
            world.clock.advance(secs(2)).await;
            continue;
        }
        let (outcome, answer) = (&mut run).await.unwrap();
        assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
        let Err(AppError::Idempotent(Rejection::Dead { attempts, error, .. })) = answer else { panic!("{answer:?}") };
        assert_eq!((deaths, attempts), (3, 3));
        assert!(error.contains("crashed"), "{error}");
        break;
    }
}

/// The record outlives the acknowledgement, which may get lost.
async fn a_finished_duplicate_is_always_acked(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    worker.outcome("k", &job).await;
    let expires = world.record("k").await.unwrap().expires_at;
    for wait in [1, 5, 60, 3600] {
        world.clock.advance(secs(wait)).await;
        assert_eq!(worker.outcome("k", &job).await.disposition(), Disposition::Ack);
        assert_eq!(world.record("k").await.unwrap().expires_at, expires, "not shortened by the ack");
    }
}

/// A success is always recorded, with or without its result.
async fn a_result_that_cannot_be_kept_is_consumed_without_it(world: World) {
    use std::collections::BTreeMap;
    type Odd = Option<BTreeMap<(u8, u8), u8>>;
    let worker = world.worker("a", Policy::new().max_result(16));
    let odd = async || {
        // JSON has no such names.
        let handler = PlainHandler::new(|| async { Ok::<Odd, AppError>(Some([((1, 2), 3)].into())) });
        Outcome::capture(worker.executor.run(Call::new(id("odd")), handler)).await
    };
    let large = async || {
        let handler = PlainHandler::new(|| async { Ok::<_, AppError>("x".repeat(100)) });
        Outcome::capture(worker.executor.run(Call::new(id("large")), handler)).await
    };
    assert!(odd().await.0.is_ok());
    assert_eq!(large().await.0.unwrap().len(), 100, "the first caller gets it");
    let (answer, outcome) = odd().await;
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::ConsumedWithoutResult { .. }))), "not Ok(None)");
    assert_eq!(outcome.clone(), Some(Outcome::ConsumedWithoutResult));
    assert_eq!(outcome.unwrap().disposition(), Disposition::Ack, "done is done");
    let (answer, outcome) = large().await;
    assert!(answer.is_err());
    assert_eq!(outcome, Some(Outcome::ConsumedWithoutResult));
    assert_eq!(worker.executor.counts().of("ran"), 2);

    // For answers without content it is plain success.
    let plain = async || {
        let handler = PlainHandler::new(|| async { Ok::<_, AppError>(()) });
        worker.executor.run(Call::new(id("unit")).policy(Policy::new().max_result(0)), handler).await
    };
    plain().await.unwrap();
    plain().await.unwrap();
}
