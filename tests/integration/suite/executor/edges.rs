//! Nested runs, drains, hints, and observer calls.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{AppError, Job, PlainHandler, ask, id, key_of, ms, on_memory, retry_after, secs};
use idempotent::reply::{HandlerOutcome, RejectStrategy, ReplyStrategy, ResponseShape};
use idempotent::{BatchItem, Call, Clock, Handler, Json, Lease, Outcome, Policy, Rejection, Store};
use idempotent_testkit::{StoreOperation, VirtualClock};

/// A crashed during its run; B took over and returned the key without a run. C must still learn about the crash.
#[test]
fn a_takeover_that_was_given_back_unstarted_stays_known() {
    on_memory(async |world| {
        for (key, policy) in [("limit", Policy::new()), ("no limit", Policy::new().max_retries(Policy::NO_LIMIT))] {
            let policy = policy.lease(secs(3));
            let (a, b, c) = (world.worker("a", policy), world.worker("b", policy), world.worker("c", policy));
            let run = a.spawn(key, &Job::takes(secs(60))).await;
            a.kill(run).await;
            world.clock.advance(secs(3)).await;
            b.store.delay_reply(StoreOperation::Claim, ms(500));
            let run = b.spawn(key, &Job::takes(ms(0))).await;
            let drain = b.drain(secs(5));
            world.clock.advance(secs(1)).await;
            assert!(matches!(run.await.unwrap().0, Outcome::Draining { .. }));
            drain.await.unwrap();
            let seen = Arc::new(Mutex::new(None));
            let handler = PlainHandler::new({
                let seen = seen.clone();
                move || async move {
                    let lease = Lease::current().unwrap();
                    *seen.lock().unwrap() = Some((lease.attempt(), lease.taken_over().is_some()));
                    Ok::<u32, AppError>(1)
                }
            });
            c.executor.run(Call::new(id(key)), handler).await.unwrap();
            assert_eq!(*seen.lock().unwrap(), Some((2, true)), "{key}: A's effect may have happened");
        }
    });
}

/// A strategy whose answers are streams.
struct Slow;
impl ResponseShape for Slow {
    type Output<R> = R;
}
impl ReplyStrategy<Result<u32, Rejection>> for Slow {
    type Value = u32;
    type Failure = Rejection;
    async fn split(_: Result<u32, Rejection>) -> HandlerOutcome<u32, Rejection> {
        std::future::pending().await
    }
    fn value(value: u32) -> Result<u32, Rejection> {
        Ok(value)
    }
    fn replayed(value: u32) -> Result<u32, Rejection> {
        Ok(value)
    }
    fn failure(failure: Rejection) -> Result<u32, Rejection> {
        Err(failure)
    }
}
impl RejectStrategy<Result<u32, Rejection>> for Slow {
    fn rejected(rejection: Rejection) -> Result<u32, Rejection> {
        Err(rejection)
    }
}

#[test]
fn a_drain_drops_a_batch_with_streaming_answers() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let _batch = tokio::spawn({
            let executor = worker.executor.clone();
            async move {
                let handler = Handler::<Slow, Json, _, _>::batch(|items: Vec<BatchItem<u8>>| async move {
                    items.iter().map(|_| Ok::<u32, Rejection>(1)).collect()
                });
                executor.run_batch(vec![(Call::new(id("k")), 1u8)], handler).await.len()
            }
        });
        world.clock.advance(secs(1)).await;
        let drain = worker.drain(secs(5));
        world.clock.advance(secs(3600)).await;
        assert!(drain.is_finished(), "an hour after a grace of 5 s");
    });
}

#[test]
fn hints_grow_for_a_known_key_though_many_keys_are_in_flight() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let job = Job::takes(ms(0));
        for key in (0..10_000).map(|n| n.to_string()) {
            world.store.claim(&ask(key_of(&key), 7)).await.unwrap();
            worker.outcome(&key, &job).await;
        }
        let again = retry_after(&worker.outcome("0", &job).await);
        assert_eq!(again, secs(2), "its second deferral");
    });
}

#[test]
fn two_drains_agree_on_what_was_abandoned() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let _run = worker.spawn("k", &Job::takes(secs(600))).await;
        let (long, short) = (worker.drain(secs(60)), worker.drain(secs(1)));
        world.clock.advance(secs(2)).await;
        short.await.unwrap();
        let long = long.await.unwrap();
        assert_eq!((long.finished, long.abandoned), (0, 1), "the one run was abandoned");
    });
}

/// "The driver looks through all of it once a turn, which is once in a third of a lease, not once a run."
#[test]
fn a_heartbeat_of_many_leases_costs_a_look_through_them_not_one_for_each() {
    #[derive(Debug)]
    struct CountingClock(VirtualClock, AtomicU32);
    impl Clock for CountingClock {
        fn now(&self) -> std::time::Instant {
            self.1.fetch_add(1, SeqCst);
            self.0.now()
        }
        fn wall(&self) -> idempotent::Timestamp {
            self.0.wall()
        }
        fn sleep_until(&self, deadline: std::time::Instant) -> idempotent::store::Timer {
            self.0.sleep_until(deadline)
        }
    }
    on_memory(async |world| {
        const RUNS: u32 = 400;
        let clock = Arc::new(CountingClock(world.clock.clone(), AtomicU32::new(0)));
        let worker = world.worker_by("a", Policy::new(), |b| b.clock(clock.clone()));
        worker.store.delay_reply(StoreOperation::Renew, ms(1));
        let mut runs = Vec::new();
        for n in 0..RUNS {
            runs.push(worker.spawn(&n.to_string(), &Job::takes(secs(60))).await);
        }
        let before = clock.1.load(SeqCst);
        world.clock.advance(ms(10_010)).await;
        let asked = world.asked(StoreOperation::Renew).len();
        let reads = clock.1.load(SeqCst) - before;
        // Each renewal reads the clock once; each turn of the driver reads it once more.
        let turns = reads - RUNS;
        assert_eq!(asked, RUNS as usize);
        assert!(turns < RUNS / 4, "{turns} looks through {RUNS} leases for one heartbeat");
    });
}
