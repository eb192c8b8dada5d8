//! Policies on a virtual clock.
use super::*;

fn world(policy: Policy) -> (World, Worker) {
    let world = World::memory();
    let worker = world.worker("a", policy);
    (world, worker)
}

async fn rest_of_lease() -> Result<u64, AppError> {
    Ok(Lease::current().unwrap().remaining().as_secs())
}

#[tokio::test]
async fn the_attribute_goes_over_the_executors_policy_over_the_scenes_default() {
    #[idempotent(key = const { ONE })]
    async fn plain() -> Result<u64, AppError> {
        rest_of_lease().await
    }
    #[idempotent(key = const { ONE }, lease = "10s")]
    async fn own() -> Result<u64, AppError> {
        rest_of_lease().await
    }
    #[idempotent(key = const { ONE }, scene = rest)]
    async fn other_scene() -> Result<u64, AppError> {
        rest_of_lease().await
    }
    // A tenth of the lease is kept as a margin.
    let (_, by_default) = world(Policy::new());
    assert_eq!(by_default.executor.scope(plain()).await.unwrap(), 27);
    let (_, by_policy) = world(Policy::new().lease(secs(20)));
    let scoped = by_policy.executor.scope(async { (plain().await, own().await, other_scene().await) }).await;
    assert_eq!((scoped.0.unwrap(), scoped.1.unwrap(), scoped.2.unwrap()), (18, 9, 27));
}

#[tokio::test]
async fn the_attributes_retention_is_not_shortened_by_the_executors_window() {
    #[idempotent(key = const { ONE }, with = e, retain = "1h")]
    async fn kept(e: &Executor) -> Result<u32, AppError> {
        Ok(ran())
    }
    let (world, worker) = world(Policy::new().window(secs(5)));
    assert_eq!(kept(&worker.executor).await.unwrap(), 1);
    world.clock.advance(secs(3599)).await;
    assert_eq!(kept(&worker.executor).await.unwrap(), 1);
    assert_runs(1);
}

#[tokio::test]
async fn a_policy_that_makes_no_sense_with_the_attribute_runs_nothing() {
    #[idempotent(key = const { ONE }, with = e, lease = "2h", max_run = "3h")]
    async fn long(e: &Executor) -> Result<u32, AppError> {
        Ok(ran())
    }
    let (_, worker) = world(Policy::new().retain(secs(3600)));
    let (answer, outcome) = Outcome::capture(long(&worker.executor)).await;
    let Err(AppError::Idempotent(Rejection::Policy(error))) = answer else { panic!("{answer:?}") };
    assert!(error.to_string().contains("2h") && error.to_string().contains("1h"), "{error}");
    assert_eq!(outcome, Some(Outcome::Misconfigured));
    assert_runs(0);
}

#[idempotent(key = id, with = worker.executor, lease = "9s", on_in_flight = wait("2s"))]
async fn waited(worker: Worker, id: u8, takes: Duration) -> Result<u32, AppError> {
    ran();
    worker.clock.sleep_until(worker.clock.now() + takes).await;
    Ok(RUNS.get())
}

#[tokio::test]
async fn a_duplicate_waits_for_the_result_at_most_for_the_configured_time() {
    let (world, worker) = world(Policy::new());
    let run = tokio::spawn(waited(worker.clone(), 1, secs(1)));
    world.clock.settle().await;
    let duplicate = tokio::spawn(Outcome::capture(waited(worker.clone(), 1, secs(1))));
    world.clock.advance(secs(1)).await;
    assert_eq!(run.await.unwrap().unwrap(), 1);
    let (answer, outcome) = duplicate.await.unwrap();
    assert_eq!((answer.unwrap(), outcome), (1, Some(Outcome::Replayed)));

    let run = tokio::spawn(waited(worker.clone(), 2, secs(5)));
    world.clock.settle().await;
    let duplicate = tokio::spawn(Outcome::capture(waited(worker.clone(), 2, secs(5))));
    world.clock.advance(ms(1_999)).await;
    assert!(!duplicate.is_finished());
    world.clock.advance(ms(1)).await;
    assert_in_flight(&duplicate.await.unwrap().1.unwrap());
    world.clock.advance(secs(3)).await;
    run.await.unwrap().unwrap();
    assert_runs(2);
}

#[tokio::test]
async fn a_duplicate_in_flight_gets_the_attributes_message() {
    #[idempotent(key = const { ONE }, with = worker.executor, message = "on its way")]
    async fn slow(worker: Worker) -> Result<(), AppError> {
        ran();
        worker.clock.sleep_until(worker.clock.now() + secs(1)).await;
        Ok(())
    }
    let (world, worker) = world(Policy::new());
    let run = tokio::spawn(slow(worker.clone()));
    world.clock.settle().await;
    let (answer, outcome) = Outcome::capture(slow(worker)).await;
    assert_eq!(answer.unwrap_err().to_string(), "on its way");
    assert_in_flight(&outcome.unwrap());
    world.clock.advance(secs(1)).await;
    run.await.unwrap().unwrap();
    assert_runs(1);
}

#[tokio::test]
async fn a_run_that_died_is_taken_over_or_parked() {
    #[idempotent(key = id, with = worker.executor, lease = "9s")]
    async fn hang(worker: &Worker, id: u8) -> Result<u32, AppError> {
        match ran() {
            1 => std::future::pending().await,
            _ => Ok(Lease::current().unwrap().attempt()),
        }
    }
    #[idempotent(key = id, with = worker.executor, lease = "9s", on_expiry = park)]
    async fn never_twice(worker: &Worker, id: u8) -> Result<(), AppError> {
        ran();
        std::future::pending().await
    }
    let (world, worker) = world(Policy::new());
    let dropped = {
        let worker = worker.clone();
        tokio::spawn(async move { tokio::join!(hang(&worker, 1), never_twice(&worker, 1)) })
    };
    world.clock.settle().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert_in_flight(&outcome_of(hang(&worker, 1)).await);
    world.clock.advance(secs(9)).await;
    assert_runs(2);
    assert_eq!(RUNS.replace(1), 0);
    assert_eq!(hang(&worker, 1).await.unwrap(), 2, "the second attempt");
    assert_eq!(RUNS.take(), 2);
    let answer = never_twice(&worker, 1).await;
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Dead { attempts: 1, .. }))), "{answer:?}");
    assert_runs(0);
}

#[tokio::test]
async fn max_retries_buries_and_counts_from_a_constant() {
    const RETRIES: u32 = 1;
    #[idempotent(key = const { ONE }, with = e, max_retries = RETRIES)]
    async fn poison(e: &Executor) -> Result<(), AppError> {
        ran();
        Err(AppError::NoStock)
    }
    #[idempotent(key = const { ONE }, with = e, max_retries = 0)]
    async fn one_try(e: &Executor) -> Result<(), AppError> {
        ran();
        Err(AppError::NoStock)
    }
    let (_, Worker { executor: e, .. }) = world(Policy::new());
    assert!(matches!(outcome_of(poison(&e)).await, Outcome::Released { .. }));
    let dead = outcome_of(poison(&e)).await;
    assert!(matches!(dead, Outcome::Dead { .. }), "{dead:?}");
    assert_eq!(outcome_of(poison(&e)).await, dead, "copies of the dead letter collapse");
    assert_runs(2);
    assert!(matches!(outcome_of(one_try(&e)).await, Outcome::Dead { .. }));
    assert_runs(1);
}

#[tokio::test]
async fn a_result_is_kept_for_its_retention() {
    #[idempotent(key = const { ONE }, with = e, lease = "9s", retain = "1h")]
    async fn hourly(e: &Executor) -> Result<u32, AppError> {
        Ok(ran())
    }
    let (world, Worker { executor: e, .. }) = world(Policy::new());
    once(1, || async { hourly(&e).await.unwrap() }).await;
    world.clock.advance(secs(3600) - ms(1)).await;
    assert_eq!(outcome_of(hourly(&e)).await, Outcome::Replayed);
    world.clock.advance(ms(1)).await;
    assert_eq!(outcome_of(hourly(&e)).await, Outcome::Ran);
}

#[tokio::test]
async fn a_message_is_a_duplicate_for_7_days_by_default() {
    #[idempotent(key = const { ONE }, with = e)]
    async fn consumed(e: &Executor) -> Result<u32, AppError> {
        Ok(ran())
    }
    let (world, Worker { executor: e, .. }) = world(Policy::new());
    once(1, || async { consumed(&e).await.unwrap() }).await;
    world.clock.advance(secs(7 * 24 * 3600) - ms(1)).await;
    assert_eq!(outcome_of(consumed(&e)).await, Outcome::Replayed);
    world.clock.advance(ms(1)).await;
    assert_eq!(outcome_of(consumed(&e)).await, Outcome::Ran);
}

#[tokio::test]
async fn a_lease_that_is_lost_drops_the_handler_or_lets_it_finish() {
    #[idempotent(key = const { ONE }, with = worker.executor, lease = "9s")]
    async fn abort(worker: Worker, takes: Duration) -> Result<(), AppError> {
        worker.clock.sleep_until(worker.clock.now() + takes).await;
        ran();
        Ok(())
    }
    #[idempotent(key = const { ONE }, with = worker.executor, lease = "9s", on_lease_lost = finish)]
    async fn finish(worker: Worker, takes: Duration) -> Result<bool, AppError> {
        worker.clock.sleep_until(worker.clock.now() + takes).await;
        ran();
        Ok(Lease::current().unwrap().is_lost())
    }
    let (world, worker) = world(Policy::new());
    worker.store.fail_before(StoreOperation::Renew, idempotent_testkit::FOREVER);
    let aborted = tokio::spawn(Outcome::capture(abort(worker.clone(), secs(10))));
    let finished = tokio::spawn(Outcome::capture(finish(worker.clone(), secs(10))));
    world.clock.advance(secs(10)).await;
    let (answer, outcome) = aborted.await.unwrap();
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::LeaseLost))), "{answer:?}");
    assert_eq!(outcome, Some(Outcome::LeaseLost));
    let (answer, outcome) = finished.await.unwrap();
    assert_eq!((answer.unwrap(), outcome), (true, Some(Outcome::Ran)), "late, but nobody took over");
    assert_runs(1);
}

#[tokio::test]
async fn max_run_ends_the_renewals() {
    #[idempotent(key = const { ONE }, with = worker.executor, lease = "9s", max_run = "1m")]
    async fn slow(worker: Worker, takes: Duration) -> Result<(), AppError> {
        worker.clock.sleep_until(worker.clock.now() + takes).await;
        Ok(())
    }
    let (world, worker) = world(Policy::new());
    let run = tokio::spawn(Outcome::capture(slow(worker, secs(3600))));
    world.clock.advance(secs(59)).await;
    assert!(!run.is_finished(), "renewed");
    world.clock.advance(secs(11)).await;
    assert_eq!(run.await.unwrap().1, Some(Outcome::LeaseLost));
}

#[tokio::test]
async fn a_store_that_is_down_refuses_the_call_or_lets_it_run_unprotected() {
    #[idempotent(key = const { ONE }, with = e)]
    async fn safe(e: Executor) -> Result<u32, AppError> {
        Ok(ran())
    }
    #[idempotent(key = const { ONE }, with = e, on_store_error = run_unprotected)]
    async fn bold(e: Executor) -> Result<u32, AppError> {
        Ok(ran())
    }
    let (world, worker) = world(Policy::new());
    worker.store.down();
    let safe = tokio::spawn(Outcome::capture(safe(worker.executor.clone())));
    world.clock.advance(secs(1)).await;
    assert!(matches!(safe.await.unwrap().1, Some(Outcome::StoreDown(_))));
    assert_runs(0);
    let bold = tokio::spawn(Outcome::capture(bold(worker.executor)));
    world.clock.advance(secs(1)).await;
    assert_eq!(bold.await.unwrap().1, Some(Outcome::Unprotected));
    assert_runs(1);
}

#[idempotent(key = const { ONE }, with = worker.executor, lease = "9s")]
async fn left(worker: Worker) -> Result<u32, AppError> {
    worker.clock.sleep_until(worker.clock.now() + secs(5)).await;
    Ok(ran())
}

#[idempotent(key = const { ONE }, with = worker.executor, lease = "9s", release_on_cancel)]
async fn freed(worker: Worker) -> Result<u32, AppError> {
    worker.clock.sleep_until(worker.clock.now() + secs(5)).await;
    Ok(ran())
}

#[idempotent(key = const { ONE }, lease = "9s", detach)]
async fn detached(worker: Worker) -> Result<u32, AppError> {
    worker.clock.sleep_until(worker.clock.now() + secs(5)).await;
    assert!(Executor::current().is_some() && Lease::current().is_some(), "scope and lease go along");
    Ok(ran())
}

#[tokio::test]
async fn a_dropped_run_leaves_its_key_to_the_lease_frees_it_or_goes_on() {
    let (world, worker) = world(Policy::new());
    let e = worker.executor.clone();
    let run = tokio::spawn({
        let worker = worker.clone();
        async move {
            tokio::join!(left(worker.clone()), freed(worker.clone()), worker.executor.scope(detached(worker.clone())))
        }
    });
    world.clock.settle().await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    world.clock.settle().await;
    assert_in_flight(&outcome_of(left(worker.clone())).await);
    let again = tokio::spawn(outcome_of(freed(worker.clone())));
    world.clock.advance(secs(5)).await;
    assert_eq!(again.await.unwrap(), Outcome::Ran);
    let (answer, outcome) = Outcome::capture(e.scope(detached(worker.clone()))).await;
    assert!(answer.is_ok());
    assert_eq!(outcome, Some(Outcome::Replayed), "it had gone on");
    assert_runs(2);
}
