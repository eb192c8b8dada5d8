//! Time that passes between a grant and its handler, and between two attempts.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::{Job, PlainHandler, id, ms, on_memory, secs};
use idempotent::observe::RunInfo;
use idempotent::store::Timer;
use idempotent::{Call, Clock, Event, Executor, Lease, MemoryStore, Observer, Outcome, Policy, Rejection, Timestamp};
use idempotent_testkit::StoreOperation;

/// A clock that only a test moves.
#[derive(Clone, Debug)]
struct Hand(Instant, Arc<AtomicU64>);

impl Clock for Hand {
    fn now(&self) -> Instant {
        self.0 + Duration::from_millis(self.1.load(SeqCst))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(1_750_000_000_000_000 + self.1.load(SeqCst) * 1_000)
    }

    fn sleep_until(&self, _: Instant) -> Timer {
        Box::pin(std::future::pending())
    }
}

/// Takes longer than the lease when it hears of the claim.
#[derive(Debug)]
struct Slow(Hand);

impl Observer for Slow {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if matches!(event, Event::Claimed { .. }) {
            self.0.1.fetch_add(1_200, SeqCst);
        }
    }
}

#[tokio::test]
async fn a_handler_does_not_start_under_a_lease_that_is_over() {
    let clock = Hand(Instant::now(), Arc::default());
    let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    let builder = Executor::builder(store).clock(Arc::new(clock.clone())).observer(Slow(clock));
    let executor = builder.build().unwrap();
    let call = Call::new(id("k")).policy(Policy::new().lease(secs(1)));
    let handler = PlainHandler::new(|| async {
        assert!(Lease::current().is_some_and(|lease| !lease.is_lost()), "begun under a lost lease");
        Ok::<_, Rejection>(())
    });
    assert!(matches!(executor.run(call, handler).await, Err(Rejection::LeaseLost)));
}

/// A first try that ran out of its own patience after the gate closed is not the drain's end.
#[test]
fn a_completion_is_retried_within_a_second_after_the_drains_grace() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(secs(3)));
        worker.store.hang(StoreOperation::Complete, 1);
        let run = worker.spawn("k", &Job::takes(ms(0))).await;
        let drain = worker.drain(ms(500));
        world.clock.advance(secs(2)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        assert_eq!(drain.await.unwrap().finished, 1);
    });
}
