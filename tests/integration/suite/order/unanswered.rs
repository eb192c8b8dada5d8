//! Requests of ordered calls that the store does not answer, and order tables that others keep changing.
use std::sync::atomic::Ordering::SeqCst;

use idempotent::observe::{Event, RunInfo};
use idempotent::ordering::OnBrokenOrder;
use idempotent_testkit::{FOREVER, StoreOperation};

use super::probe::ProbeStore;
use super::sequence::{comes, numbered};
use super::*;
use crate::common::{PlainHandler, on_memory};

/// A third of the lease.
const PATIENCE: Duration = Duration::from_secs(10);

/// Begins a call that comes after a missing one.
fn begin_after(worker: &Worker) -> tokio::task::JoinHandle<Outcome> {
    let worker = worker.clone();
    tokio::spawn(async move { deliver(&worker, "2", "1", &Job::takes(ms(0))).await })
}

/// Checks that a call ends with an error of the store as soon as a third of its lease has passed.
async fn ends_after_a_third_of_the_lease(world: &World, run: tokio::task::JoinHandle<Outcome>, what: &str) {
    world.clock.settle().await;
    world.clock.advance(PATIENCE - ms(1)).await;
    assert!(!run.is_finished(), "{what}");
    world.clock.advance(ms(1)).await;
    assert!(run.is_finished(), "{what}");
    let outcome = run.await.unwrap();
    assert!(matches!(outcome, Outcome::StoreDown(_)), "{what}: {outcome:?}");
}

#[test]
fn a_call_that_waits_for_another_one_gives_up_each_request_after_a_third_of_its_lease() {
    for hanging in [StoreOperation::Peek, StoreOperation::Claim, StoreOperation::Release] {
        on_memory(async |world| {
            let worker = world.worker("a", Policy::new().lease(PATIENCE * 3));
            worker.store.hang(hanging, FOREVER);
            ends_after_a_third_of_the_lease(&world, begin_after(&worker), &format!("{hanging:?}")).await;
        });
    }
}

#[test]
fn a_call_that_is_halted_gives_up_each_request_after_a_third_of_its_lease() {
    for hanging in [StoreOperation::Claim, StoreOperation::Release] {
        on_memory(async |world| {
            let policy = Policy::new().lease(PATIENCE * 3).on_broken_order(OnBrokenOrder::Halt(secs(60)));
            let worker = world.worker("a", policy);
            assert_waiting(&deliver(&worker, "2", "1", &Job::takes(ms(0))).await);
            world.clock.advance(secs(60)).await;
            worker.store.hang(hanging, FOREVER);
            ends_after_a_third_of_the_lease(&world, begin_after(&worker), &format!("{hanging:?}")).await;
        });
    }
}

#[test]
fn a_call_of_a_stream_gives_up_each_request_after_a_third_of_its_lease() {
    for hanging in [StoreOperation::Line, StoreOperation::CompareAndSwap] {
        on_memory(async |world| {
            let worker = world.worker("a", Policy::new().lease(PATIENCE * 3));
            worker.store.hang(hanging, FOREVER);
            let run = tokio::spawn({
                let worker = worker.clone();
                async move { comes(&worker, "ann", 1, &Job::takes(ms(0))).await }
            });
            ends_after_a_third_of_the_lease(&world, run, &format!("{hanging:?}")).await;
        });
    }
}

#[test]
fn a_registration_gives_up_each_request_after_a_third_of_the_lease() {
    for hanging in [StoreOperation::Line, StoreOperation::CompareAndSwap] {
        on_memory(async |world| {
            let worker = world.worker("a", Policy::new().lease(PATIENCE * 3));
            worker.store.hang(hanging, FOREVER);
            let run = tokio::spawn(async move { worker.executor.register(&id("ann"), [1]).await });
            world.clock.settle().await;
            world.clock.advance(PATIENCE - ms(1)).await;
            assert!(!run.is_finished(), "{hanging:?}");
            world.clock.advance(ms(1)).await;
            assert!(run.await.unwrap().is_err(), "{hanging:?}");
        });
    }
}

#[test]
fn an_item_of_a_batch_does_not_wait_in_place() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_in_flight(idempotent::OnInFlight::Wait(secs(60))));
        worker.executor.register(&id("ann"), [1]).await.unwrap();
        let calls = vec![after("2", "1"), numbered("ann", 2)];
        let run = tokio::spawn(async move { deliver_batch(&worker, calls).await });
        world.clock.settle().await;
        assert!(run.is_finished(), "the other items would wait too");
        assert_eq!(run.await.unwrap(), ["waiting", "waiting"]);
    });
}

#[test]
fn a_number_that_waits_in_place_ends_with_a_drain() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_in_flight(idempotent::OnInFlight::Wait(secs(60))));
        worker.executor.register(&id("ann"), [1]).await.unwrap();
        let run = tokio::spawn({
            let worker = worker.clone();
            async move { comes(&worker, "ann", 2, &Job::takes(ms(0))).await }
        });
        world.clock.settle().await;
        assert!(!run.is_finished());
        worker.drain(secs(5)).await.unwrap();
        world.clock.settle().await;
        assert!(run.is_finished());
        assert!(matches!(run.await.unwrap(), Outcome::Draining { .. }));
    });
}

/// An observer that keeps the errors of the store.
#[derive(Clone, Debug, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Observer for Errors {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::StoreFailed { error, .. } = event {
            self.0.lock().unwrap().push(error.to_string());
        }
    }
}

#[tokio::test]
async fn a_call_and_a_registration_give_up_after_64_changes_of_their_table_by_others() {
    let store = Arc::new(ProbeStore { contended: Some(0.into()), ..ProbeStore::default() });
    let errors = Errors::default();
    let executor = idempotent::Executor::builder(store.clone()).observer(errors.clone()).build().unwrap();
    let writes = || store.contended.as_ref().unwrap().swap(0, SeqCst);
    let handler = PlainHandler::new(|| async { Ok::<_, Rejection>(1) });
    let (_, outcome) = Outcome::capture(executor.run(numbered("ann", 1), handler)).await;
    assert!(matches!(outcome, Some(Outcome::StoreDown(_))), "{outcome:?}");
    assert_eq!(writes(), 64);
    let errors = errors.0.lock().unwrap().clone();
    assert!(errors.iter().any(|error| error.contains("64 times in a row; retry")), "{errors:?}");
    assert!(executor.register(&id("ann"), [1]).await.unwrap_err().to_string().contains("64 times in a row"));
    assert_eq!(writes(), 64);
}
