//! The waiting calls and the hints of an executor.
use std::collections::BTreeSet;

use idempotent::{OnInFlight, Outcome, Policy};

use crate::common::{End, Job, assert_in_flight, ms, on_memory, retry_after, secs};

#[test]
fn the_number_of_waiting_calls_is_that_of_the_calls_that_wait_now() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_in_flight(OnInFlight::Wait(secs(60))));
        let job = Job::takes(secs(5));
        let owner = worker.spawn("k", &job).await;
        assert_eq!(worker.executor.waiting(), 0);
        let waiters = [worker.spawn("k", &job).await, worker.spawn("k", &job).await, worker.spawn("k", &job).await];
        assert_eq!(worker.executor.waiting(), 3);
        world.clock.advance(secs(5)).await;
        assert_eq!(owner.await.unwrap().0, Outcome::Ran);
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap().0, Outcome::Replayed);
        }
        assert_eq!(worker.executor.waiting(), 0);
    });
}

#[test]
fn the_hints_of_duplicates_grow_until_the_run_has_ended() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().in_flight_delay(ms(100)).retry_delay(ms(1)));
        let hints = async || {
            let mut hints = Vec::new();
            for _ in 0..2 {
                let outcome = worker.outcome("k", &Job::takes(ms(0))).await;
                assert_in_flight(&outcome);
                hints.push(retry_after(&outcome));
            }
            hints
        };
        let fails = worker.spawn("k", &Job::ends(secs(5), End::Err)).await;
        let first = hints().await;
        assert!(first[0] == ms(100) && first[0] < first[1], "{first:?}");
        world.clock.advance(secs(5)).await;
        assert!(matches!(fails.await.unwrap().0, Outcome::Released { .. }));
        world.clock.advance(ms(1)).await;
        let again = worker.spawn("k", &Job::takes(secs(5))).await;
        assert_eq!(hints().await, first, "for another run");
        world.clock.advance(secs(5)).await;
        assert_eq!(again.await.unwrap().0, Outcome::Ran);
    });
}

#[test]
fn jitter_spreads_hints_around_the_delay() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().retry_delay(secs(10)).jitter(20));
        let mut delays = BTreeSet::new();
        for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            delays.insert(retry_after(&worker.outcome(key, &Job::ends(ms(0), End::Err)).await));
        }
        assert!(delays.len() > 6, "{delays:?}");
        assert!(delays.iter().all(|delay| (secs(8)..=secs(12)).contains(delay)), "{delays:?}");
        assert!(delays.first().is_some_and(|delay| *delay < secs(10)), "{delays:?}");
        assert!(delays.last().is_some_and(|delay| *delay > secs(10)), "{delays:?}");
    });
}
