//! Runs inside runs, and runs that are not all a handler does, on a virtual clock.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::common::{AppError, Job, PlainHandler, World, assert_in_flight, id, ms, secs};
use idempotent::store::StateKind;
use idempotent::{Call, Disposition, Executor, Identity, Lease, OnStoreError, Outcome, Policy, Rejection, Scene};
use idempotent_testkit::VirtualClock;

on_all_stores! {
    an_inner_run_that_was_consumed_lets_the_outer_one_go_on
    an_inner_run_in_flight_puts_the_outer_one_off
    an_error_swallowed_around_a_run_is_still_reported
    a_nested_run_of_the_same_key_is_refused_by_name
    a_nested_run_of_the_same_key_is_refused_inside_an_unprotected_run
    a_capture_inside_a_capture_is_seen_by_both
    an_inner_run_that_waits_while_its_executor_drains_does_not_spin
}

async fn outer(
    executor: &Executor,
    inner_job: Arc<Job>,
    clock: VirtualClock,
    outer_runs: Arc<AtomicU32>,
) -> (Result<u32, AppError>, Option<Outcome>) {
    let again = executor.clone();
    let handler = PlainHandler::new(move || async move {
        outer_runs.fetch_add(1, SeqCst);
        let inner = PlainHandler::new(move || async move { inner_job.run(&clock).await });
        let value = again.run(Call::new(Identity::new(Scene::Mq, "inner", "k2")), inner).await?;
        assert!(Lease::current().unwrap().key().as_str().contains("outer"), "contexts are separate");
        Ok::<_, AppError>(value + 10)
    });
    Outcome::capture(executor.run(Call::new(Identity::new(Scene::Mq, "outer", "k1")), handler)).await
}

/// The context of an inner run does not affect the outer run.
async fn an_inner_run_that_was_consumed_lets_the_outer_one_go_on(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let inner = PlainHandler::new({
        let (job, clock) = (job.clone(), world.clock.clone());
        move || async move { job.run(&clock).await }
    });
    let inner_call = || Call::new(Identity::new(Scene::Mq, "inner", "k2"));
    assert_eq!(worker.executor.run(inner_call(), inner).await.unwrap(), 1);
    let runs = Arc::new(AtomicU32::new(0));
    let (answer, outcome) = outer(&worker.executor, job.clone(), world.clock.clone(), runs).await;
    assert_eq!((answer.unwrap(), outcome), (11, Some(Outcome::Ran)), "the inner one's stored result");
    assert_eq!(job.runs(), 1);
    for scope in ["inner", "outer"] {
        let key = Identity::new(Scene::Mq, scope, if scope == "inner" { "k2" } else { "k1" }).key("idempotent");
        let record = idempotent::Store::peek(&world.store, &key.unwrap()).await.unwrap().unwrap();
        assert_eq!(record.state.kind(), StateKind::Consumed, "{scope}: both");
    }
}

async fn an_inner_run_in_flight_puts_the_outer_one_off(world: World) {
    let worker = world.worker("a", Policy::new().max_retries(1));
    let slow = Job::takes(secs(20));
    let held = tokio::spawn({
        let (executor, job, clock) = (worker.executor.clone(), slow.clone(), world.clock.clone());
        async move {
            let handler = PlainHandler::new(move || async move { job.run(&clock).await });
            executor.run(Call::new(Identity::new(Scene::Mq, "inner", "k2")), handler).await.map_err(drop)
        }
    });
    world.clock.settle().await;
    let runs = Arc::new(AtomicU32::new(0));
    for _ in 0..5 {
        // More often than it may fail: being put off is no attempt.
        let (answer, outcome) = outer(&worker.executor, slow.clone(), world.clock.clone(), runs.clone()).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::InFlight { .. }))));
        assert_in_flight(&outcome.unwrap());
    }
    world.clock.advance(secs(20)).await;
    held.await.unwrap().unwrap();
    let (answer, outcome) = outer(&worker.executor, slow, world.clock.clone(), runs.clone()).await;
    assert_eq!((answer.unwrap(), outcome), (11, Some(Outcome::Ran)), "not stuck");
    assert_eq!(runs.load(SeqCst), 6);
}

async fn an_error_swallowed_around_a_run_is_still_reported(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(secs(9)));
    let _held = worker.spawn("k", &job).await;
    let (answer, outcome) = Outcome::capture(async {
        let _ = worker.deliver("other", &Job::takes(ms(0))).await;
        let run = async {
            let handler = PlainHandler::new(|| async { Ok::<_, AppError>(1) });
            worker.executor.run(Call::new(id("k")), handler).await
        };
        let _ = run.await;
        "all is well"
    })
    .await;
    assert_eq!(answer, "all is well");
    let settled = outcome.unwrap().settle(Disposition::Ack);
    assert!(matches!(settled, Disposition::Retry { .. }), "an error swallowed is still an outcome: {settled:?}");
    let nothing: (_, Option<Outcome>) = Outcome::capture(async {}).await;
    assert_eq!(nothing.1, None, "no run at all: the returned value settles");
}

/// Found by the interleavings, seed 21182: it asked again and again in one instant.
async fn an_inner_run_that_waits_while_its_executor_drains_does_not_spin(world: World) {
    let waits = Policy::new().on_in_flight(idempotent::OnInFlight::Wait(secs(60)));
    let (worker, other) = (world.worker("a", waits), world.worker("b", waits));
    let held = tokio::spawn({
        let (executor, clock) = (other.executor.clone(), world.clock.clone());
        async move {
            let handler = PlainHandler::new(move || async move { Job::takes(secs(5)).run(&clock).await });
            executor.run(Call::new(Identity::new(Scene::Mq, "inner", "k2")), handler).await.map_err(drop)
        }
    });
    world.clock.settle().await;
    let (job, runs) = (Job::takes(ms(0)), Arc::new(AtomicU32::new(0)));
    let run = tokio::spawn({
        let (worker, clock) = (worker.clone(), world.clock.clone());
        async move { outer(&worker.executor, job, clock, runs).await }
    });
    world.clock.settle().await;
    let drain = worker.drain(secs(30));
    world.clock.advance(secs(6)).await;
    held.await.unwrap().unwrap();
    let (answer, outcome) = run.await.unwrap();
    assert_eq!((answer.unwrap(), outcome), (11, Some(Outcome::Ran)), "what runs may finish, with what is inside it");
    assert_eq!(drain.await.unwrap().finished, 2);
    assert!(world.asked(idempotent_testkit::StoreOperation::Claim).len() < 300, "a look every 50 ms at most");
}

/// A worker that captures an outcome leaves it visible to the code that settles.
async fn a_capture_inside_a_capture_is_seen_by_both(world: World) {
    let worker = world.worker("a", Policy::new());
    let _held = worker.spawn("k", &Job::takes(secs(9))).await;
    let (seen, disposition) = Disposition::of(async {
        let handler = PlainHandler::new(|| async { Ok::<_, AppError>(1) });
        let (_, outcome) = Outcome::capture(worker.executor.run(Call::new(id("k")), handler)).await;
        Ok::<_, AppError>(outcome)
    })
    .await;
    assert_in_flight(&seen.unwrap().unwrap());
    assert!(matches!(disposition, Disposition::Retry { .. }), "{disposition:?}");
}

async fn a_nested_run_of_the_same_key_is_refused_by_name(world: World) {
    let worker = world.worker("a", Policy::new());
    let again = worker.clone();
    let handler = PlainHandler::new(move || async move {
        let (outcome, answer) = again.deliver("k", &Job::takes(ms(0))).await;
        assert_eq!(outcome, Outcome::Nested);
        answer
    });
    let error = worker.executor.run(Call::new(id("k")), handler).await.unwrap_err();
    assert!(error.to_string().contains("`work` already runs with this key"), "{error}");
}

async fn a_nested_run_of_the_same_key_is_refused_inside_an_unprotected_run(world: World) {
    let worker = world.worker("a", Policy::new().on_store_error(OnStoreError::RunUnprotected));
    let run = tokio::spawn({
        let worker = worker.clone();
        async move {
            let (outer, inner) = (worker.clone(), worker.clone());
            let handler = PlainHandler::new(move || async move {
                outer.store.down();
                let unprotected = PlainHandler::new(move || async move {
                    inner.store.up();
                    let (outcome, _) = inner.deliver("k", &Job::takes(ms(0))).await;
                    Ok::<_, AppError>(outcome.name().to_owned())
                });
                outer.executor.run(Call::new(id("unprotected")), unprotected).await
            });
            worker.executor.run(Call::new(id("k")), handler).await
        }
    });
    world.clock.advance(secs(1)).await;
    assert_eq!(run.await.unwrap().unwrap(), "nested");
    assert_eq!(worker.executor.counts().of("unprotected"), 1);
}
