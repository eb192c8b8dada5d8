//! Answers of the store that arrive after a drain has begun.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities};
use idempotent::{Call, Clock, Executor, Key, OnStoreError, Outcome, Policy, Scene, Store, StoreError, StoreErrorKind};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::common::{AppError, Job, PlainHandler, Worker, World, assert_in_flight, id, ms, on_memory, secs};

/// Starts a call of `k` inside of a run that began before a drain. Returns the outcome of the inner call.
async fn nested_during_a_drain(world: &World, worker: &Worker) -> Outcome {
    let seen = Arc::new(Mutex::new(None));
    let outer = tokio::spawn({
        let (worker, seen) = (worker.clone(), seen.clone());
        async move {
            let handler = PlainHandler::new(|| async {
                worker.clock.sleep_until(worker.clock.now() + secs(1)).await;
                *seen.lock().unwrap() = Some(worker.outcome("k", &Job::takes(ms(0))).await);
                Ok::<u32, AppError>(1)
            });
            drop(worker.executor.run(Call::new(id("outer")), handler).await);
        }
    });
    world.clock.settle().await;
    let _drain = worker.drain(secs(60));
    world.clock.advance(secs(2)).await;
    outer.await.unwrap();
    let outcome = seen.lock().unwrap().take();
    outcome.unwrap()
}

#[test]
fn a_duplicate_of_a_run_in_flight_is_rejected_by_the_drain_and_a_nested_one_by_the_run() {
    on_memory(async |world| {
        let (owner, worker) = (world.worker("owner", Policy::new()), world.worker("a", Policy::new()));
        let _run = owner.spawn("k", &Job::takes(secs(600))).await;
        worker.store.delay(StoreOperation::Claim, ms(500));
        let duplicate = worker.spawn("k", &Job::takes(ms(0))).await;
        let _drain = worker.drain(secs(60));
        world.clock.advance(ms(500)).await;
        assert!(matches!(duplicate.await.unwrap().0, Outcome::Draining { .. }));
        assert_in_flight(&nested_during_a_drain(&world, &world.worker("b", Policy::new())).await);
    });
}

#[test]
fn a_failed_claim_is_rejected_by_the_drain_and_a_nested_one_by_the_store() {
    on_memory(async |world| {
        let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
        let worker = world.worker("a", policy);
        worker.store.delay(StoreOperation::Claim, ms(500));
        worker.store.fail_before(StoreOperation::Claim, FOREVER);
        let job = Job::takes(ms(0));
        let run = worker.spawn("k", &job).await;
        let _drain = worker.drain(secs(60));
        world.clock.advance(secs(3)).await;
        assert!(matches!(run.await.unwrap().0, Outcome::Draining { .. }));
        assert_eq!(job.runs(), 0);

        let worker = world.worker("b", Policy::new());
        worker.store.pass(StoreOperation::Claim, 1);
        worker.store.fail_before(StoreOperation::Claim, FOREVER);
        assert!(matches!(nested_during_a_drain(&world, &worker).await, Outcome::StoreDown(_)));
    });
}

/// A store whose claims fail.
#[derive(Debug)]
struct Failing(StoreErrorKind);

#[async_trait]
impl Store for Failing {
    async fn claim(&self, _: &ClaimRequest) -> Result<Claim, StoreError> {
        Err(StoreError::new(self.0))
    }
    async fn renew(&self, _: &ClaimHandle, _: Duration) -> Result<Settled, StoreError> {
        Err(StoreError::new(self.0))
    }
    async fn complete(&self, _: &ClaimHandle, _: &Completion) -> Result<Settled, StoreError> {
        Err(StoreError::new(self.0))
    }
    async fn release(&self, _: &ClaimHandle, _: &Release) -> Result<Settled, StoreError> {
        Err(StoreError::new(self.0))
    }
    async fn peek(&self, _: &Key) -> Result<Option<Record>, StoreError> {
        Err(StoreError::new(self.0))
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

/// The record that cannot be read may be a consumed one.
#[test]
fn a_handler_runs_unprotected_only_if_the_store_is_unavailable() {
    on_memory(async |world| {
        for (kind, runs) in [(StoreErrorKind::NotApplied, 1), (StoreErrorKind::Denied, 0), (StoreErrorKind::Corrupt, 0)]
        {
            let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
            let executor = Executor::builder(Failing(kind)).policy(Scene::Mq, policy).build();
            let worker = Worker { executor: executor.unwrap(), store: world.store.clone(), clock: world.clock.clone() };
            let job = Job::takes(ms(0));
            worker.outcome("k", &job).await;
            assert_eq!(job.runs(), runs, "{kind:?}");
        }
    });
}

/// "Runs in flight go on": also those that call another idempotent handler.
#[test]
fn a_drain_lets_a_run_in_flight_finish_its_inner_runs() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        assert_eq!(nested_during_a_drain(&world, &worker).await, Outcome::Ran);
        assert_eq!(worker.executor.counts().of("ran"), 2, "the outer run ends too");
    });
}
