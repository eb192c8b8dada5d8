//! Nested runs, drains, hints, and observer calls.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{AppError, Job, ask, id, key_of, ms, on_memory, retry_after, secs};
use async_trait::async_trait;
use idempotent::reply::{DefaultReply, HandlerOutcome, RejectStrategy, ReplyStrategy, ResponseShape};
use idempotent::store::{
    Claim, ClaimHandle, ClaimRequest, Completion, OwnerToken, Record, Release, ReleaseKind, Settled, StoreCapabilities,
};
use idempotent::{
    BatchItem, Call, Clock, Executor, Handler, Json, Key, Lease, MemoryStore, Outcome, Policy, Rejection, Scene, Store,
    StoreError,
};
use idempotent_testkit::{StoreOperation, VirtualClock};

/// "Runs in flight go on": also those that call another idempotent handler.
#[test]
fn a_drain_lets_a_run_in_flight_finish_its_inner_runs() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let run = tokio::spawn({
            let (executor, clock) = (worker.executor.clone(), world.clock.clone());
            async move {
                let outer = Handler::<DefaultReply, Json, _, _>::new({
                    let executor = executor.clone();
                    move || async move {
                        clock.sleep_until(clock.now() + secs(2)).await;
                        let inner = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<u32, AppError>(1) });
                        executor.run(Call::new(id("inner")), inner).await
                    }
                });
                Outcome::capture(executor.run(Call::new(id("outer")), outer)).await.1.unwrap()
            }
        });
        world.clock.advance(secs(1)).await;
        let drain = worker.drain(secs(30));
        world.clock.advance(secs(2)).await;
        assert_eq!(run.await.unwrap(), Outcome::Ran, "29 s of grace were left");
        drain.await.unwrap();
    });
}

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
            let handler = Handler::<DefaultReply, Json, _, _>::new({
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

/// Holds the first claim of the second owner on the way, as a network would: its sender has long given up when it
/// arrives.
#[derive(Debug)]
struct Straggler {
    inner: MemoryStore,
    clock: VirtualClock,
    arrives: Duration,
    seen: AtomicU32,
}

#[async_trait]
impl Store for Straggler {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if self.seen.fetch_add(1, SeqCst) == 0 {
            let (inner, clock, request, at) =
                (self.inner.clone(), self.clock.clone(), request.clone(), self.clock.now() + self.arrives);
            tokio::spawn(async move {
                clock.sleep_until(at).await;
                let _ = inner.claim(&request).await;
            });
            return std::future::pending().await;
        }
        self.inner.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.inner.complete(held, completion).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.inner.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

/// "`sent` is when the first of these claims went out: whichever was applied, its lease began no earlier" — also while
/// a duplicate waits and asks again and again by one token.
#[test]
fn the_guard_of_a_waiter_never_passes_the_stores_lease() {
    on_memory(async |world| {
        let (clock, lease) = (world.clock.clone(), ms(300));
        let inner = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let owner = ClaimHandle::unanswered(key_of("k"), OwnerToken(1));
        inner.claim(&ask(key_of("k"), 1)).await.unwrap();
        // Asks go out at 0 (held up), 100+10 (in flight), then every 50 ms. The owner frees the key just after one of
        // them, and the straggler arrives just after that.
        let straggler =
            Straggler { inner: inner.clone(), clock: clock.clone(), arrives: ms(262), seen: AtomicU32::new(0) };
        let policy = Policy::new().lease(lease).on_in_flight(idempotent::OnInFlight::Wait(secs(5)));
        let executor =
            Executor::builder(straggler).clock(Arc::new(clock.clone())).policy(Scene::Mq, policy).build().unwrap();
        let late = Arc::new(Mutex::new(None));
        let run = tokio::spawn({
            let (late, clock, inner) = (late.clone(), clock.clone(), inner.clone());
            async move {
                let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move {
                    let lease = Lease::current().unwrap();
                    let record = inner.peek(lease.key()).await.unwrap().unwrap();
                    let idempotent::store::State::Consuming { until, .. } = record.state else { panic!("{record:?}") };
                    *late.lock().unwrap() = Some((lease.remaining(), until - clock.wall()));
                    Ok::<u32, AppError>(1)
                });
                executor.run(Call::new(id("k")), handler).await.is_ok()
            }
        });
        world.clock.advance(ms(261)).await;
        let free = Release { kind: ReleaseKind::Delete, delay: ms(0), retention: ms(0), error: "".into() };
        inner.release(&owner, &free).await.unwrap();
        world.clock.advance(secs(3)).await;
        // Given back unused, or used within what the store gave.
        let ran = run.await.unwrap();
        let times = *late.lock().unwrap();
        assert_eq!(ran, times.is_some());
        assert!(times.is_none_or(|(guard, rest)| guard <= rest), "(by the guard, by the store): {times:?}");
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
