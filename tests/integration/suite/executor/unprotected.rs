//! Handlers that run without a lease because the store is unavailable.
use idempotent::{Call, Lease, OnStoreError, Outcome, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::common::{AppError, Job, PlainHandler, assert_in_flight, id, ms, on_memory, secs};

/// The outer run holds its own key, and the handler inside of it holds none.
#[test]
fn a_handler_without_a_lease_does_not_see_the_lease_of_the_run_around_it() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_store_error(OnStoreError::RunUnprotected));
        worker.store.pass(StoreOperation::Claim, 1);
        worker.store.fail_before(StoreOperation::Claim, FOREVER);
        let unprotected = PlainHandler::new(|| async {
            assert!(Lease::current().is_none());
            Ok::<_, AppError>(1)
        });
        let executor = worker.executor.clone();
        let outer = PlainHandler::new(|| async move {
            let (answer, outcome) = Outcome::capture(executor.run(Call::new(id("inner")), unprotected)).await;
            assert_eq!(outcome, Some(Outcome::Unprotected));
            answer
        });
        let run = tokio::spawn(async move { worker.executor.run(Call::new(id("outer")), outer).await });
        world.clock.advance(secs(30)).await;
        assert_eq!(run.await.unwrap().unwrap(), 1);
    });
}

/// The handler has swallowed the rejection of a run inside of it.
#[test]
fn the_outcome_of_an_unprotected_run_is_its_own() {
    on_memory(async |world| {
        let (worker, healthy) = (
            world.worker("a", Policy::new().on_store_error(OnStoreError::RunUnprotected)),
            world.worker("b", Policy::new()),
        );
        worker.store.fail_before(StoreOperation::Claim, FOREVER);
        let _held = healthy.spawn("k", &Job::takes(secs(600))).await;
        let handler = PlainHandler::new(|| async move {
            assert_in_flight(&healthy.outcome("k", &Job::takes(ms(0))).await);
            Ok::<_, AppError>(1)
        });
        let run = async move { worker.executor.run(Call::new(id("outer")), handler).await };
        let run = tokio::spawn(async move { Outcome::capture(run).await.1 });
        world.clock.advance(secs(30)).await;
        assert_eq!(run.await.unwrap(), Some(Outcome::Unprotected));
    });
}
