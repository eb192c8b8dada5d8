//! Completion of a batch in one trip, and of its other items separately.
use crate::common::PlainHandler;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    Batch, Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StateKind, StoreCapabilities,
};
use idempotent::{
    BatchItem, Call, Clock, Executor, Identity, Key, MemoryStore, Outcome, Policy, Rejection, Scene, Store, StoreError,
    StoreErrorKind,
};
use idempotent_testkit::VirtualClock;

const KEYS: [&str; 3] = ["a", "b", "c"];

/// The fate of completions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trip {
    Heard,
    /// Applied, with a lost response.
    Unheard,
    /// Rejected with an error that a retry cannot fix.
    Refused,
    /// Rejected in the same way after 2.1 s.
    RefusedLate,
    Hangs,
    Panics,
    /// No response, also for single calls.
    AllHang,
}

#[derive(Debug)]
struct Trips {
    inner: MemoryStore,
    clock: VirtualClock,
    trip: Trip,
    together: AtomicU32,
    alone: AtomicU32,
}

#[async_trait]
impl Store for Trips {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.inner.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        self.alone.fetch_add(1, SeqCst);
        if self.trip == Trip::AllHang {
            return pending().await;
        }
        self.inner.complete(held, done).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.inner.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_batch(self)
    }
}

#[async_trait]
impl Batch for Trips {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        let mut answers = Vec::new();
        for request in requests {
            answers.push(self.inner.claim(request).await);
        }
        answers
    }
    async fn renew_all(&self, _: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        pending().await
    }
    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        self.together.fetch_add(1, SeqCst);
        if self.trip == Trip::RefusedLate {
            self.clock.sleep_until(self.clock.now() + Duration::from_millis(2_100)).await;
        }
        assert_ne!(self.trip, Trip::Panics, "injected");
        let mut answers = Vec::new();
        for (held, done) in done {
            answers.push(match self.trip {
                Trip::Heard => self.inner.complete(held, done).await,
                Trip::Unheard => {
                    self.inner.complete(held, done).await.unwrap();
                    Err(StoreError::new(StoreErrorKind::Ambiguous))
                }
                Trip::Refused | Trip::RefusedLate => Err(StoreError::new(StoreErrorKind::Denied)),
                Trip::Hangs | Trip::AllHang | Trip::Panics => pending().await,
            });
        }
        answers
    }
}

struct Stage {
    clock: VirtualClock,
    store: Arc<Trips>,
    inner: MemoryStore,
    executor: Executor,
}

impl Stage {
    fn set(trip: Trip) -> Self {
        Self::with(trip, Policy::new())
    }

    fn with(trip: Trip, policy: Policy) -> Self {
        let clock = VirtualClock::new();
        let inner = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let trips = Trips { inner: inner.clone(), clock: clock.clone(), trip, together: 0.into(), alone: 0.into() };
        let store = Arc::new(trips);
        let executor = Executor::builder(store.clone()).clock(Arc::new(clock.clone())).policy(Scene::Rest, policy);
        let executor = executor.build().unwrap();
        Self { clock, store, inner, executor }
    }

    /// All of [`KEYS`]; those that `fails` names fail, whatever becomes of the lease of the one it says.
    fn run(&self, fails: &'static str, loses: &'static str) -> tokio::task::JoinHandle<Vec<Outcome>> {
        let (executor, inner) = (self.executor.clone(), self.inner.clone());
        let calls = KEYS.map(|key| (Call::new(Identity::new(Scene::Rest, "orders", key)), key));
        let handler = PlainHandler::batch(move |items: Vec<BatchItem<&'static str>>| async move {
            for given in items.iter().filter(|given| given.item == loses) {
                let (key, fencing) = (given.lease.key().clone(), given.lease.fencing());
                let admin = inner.capabilities().admin.unwrap();
                admin.forget(&key, fencing, true, Duration::from_secs(60)).await.unwrap();
            }
            let told = |item| if item == fails { Err(Rejection::LeaseLost) } else { Ok(1) };
            items.iter().map(|given| told(given.item)).collect()
        });
        tokio::spawn(async move {
            let answers = executor.run_batch(calls.into(), handler).await;
            answers.into_iter().map(|answer| answer.outcome).collect()
        })
    }

    async fn kind(&self, key: &str) -> StateKind {
        let key = Identity::new(Scene::Rest, "orders", key).key("idempotent").unwrap();
        self.inner.peek(&key).await.unwrap().map_or(StateKind::Absent, |record| record.state.kind())
    }

    fn trips(&self) -> (u32, u32) {
        (self.store.together.load(SeqCst), self.store.alone.load(SeqCst))
    }
}

#[tokio::test]
async fn a_batch_is_completed_in_one_trip() {
    let stage = Stage::set(Trip::Heard);
    assert_eq!(stage.run("", "").await.unwrap(), vec![Outcome::Ran; 3]);
    assert_eq!(stage.trips(), (1, 0), "together, alone");
    for key in KEYS {
        assert_eq!(stage.kind(key).await, StateKind::Consumed, "{key}");
    }
}

#[tokio::test]
async fn an_item_that_failed_or_lost_its_lease_does_not_stop_the_trip_of_the_others() {
    let stage = Stage::set(Trip::Heard);
    let outcomes = stage.run("a", "b").await.unwrap();
    assert_ne!(outcomes[0], Outcome::Ran, "it failed");
    assert_eq!(outcomes[1..], [Outcome::LeaseLost, Outcome::Ran]);
    assert_eq!(stage.trips(), (1, 0), "together, alone");
}

#[tokio::test]
async fn an_item_that_a_batch_did_not_settle_is_completed_separately() {
    for trip in [Trip::Unheard, Trip::Refused, Trip::Hangs, Trip::Panics] {
        let stage = Stage::set(trip);
        let run = stage.run("", "");
        stage.clock.advance(Duration::from_secs(3_600)).await;
        assert!(run.is_finished(), "{trip:?}");
        assert_eq!(run.await.unwrap(), vec![Outcome::Ran; 3], "{trip:?}");
        assert_eq!(stage.trips(), (1, 3), "together, alone: {trip:?}");
    }
}

/// A store that does not respond gets a second after the grace period, and not one second for the call and one for
/// each item.
#[tokio::test]
async fn a_drain_gives_the_completion_of_a_batch_a_second_in_all() {
    // The items are completed alone only if the first try ends before the drain.
    for (policy, trips) in [(Policy::new(), (1, 6)), (Policy::new().settle_timeout(Duration::from_secs(10)), (1, 0))] {
        let stage = Stage::with(Trip::AllHang, policy);
        let run = stage.run("", "");
        stage.clock.settle().await;
        let executor = stage.executor.clone();
        let drain = tokio::spawn(async move { executor.drain(Duration::from_secs(2)).await });
        stage.clock.advance(Duration::from_millis(2_999)).await;
        assert!(!drain.is_finished(), "at {:?}", stage.clock.elapsed());
        stage.clock.advance(Duration::from_millis(1)).await;
        assert!(drain.is_finished() && run.is_finished(), "at {:?}", stage.clock.elapsed());
        assert_eq!(stage.trips(), trips, "together, alone: {policy:?}");
    }
}

/// The store is alive, so the second after the grace period is used.
#[tokio::test]
async fn a_batch_that_is_refused_after_the_grace_period_is_completed_separately() {
    let stage = Stage::with(Trip::RefusedLate, Policy::new().settle_timeout(Duration::from_secs(10)));
    let run = stage.run("", "");
    stage.clock.settle().await;
    let executor = stage.executor.clone();
    let drain = tokio::spawn(async move { executor.drain(Duration::from_secs(2)).await });
    stage.clock.advance(Duration::from_millis(2_100)).await;
    assert_eq!(run.await.unwrap(), vec![Outcome::Ran; 3]);
    assert_eq!((stage.trips(), drain.await.unwrap().finished), ((1, 3), 3), "together, alone");
}

/// The first try ends at its own deadline, a third of the lease, and not by the drain.
#[tokio::test]
async fn a_batch_without_an_answer_is_completed_separately_in_the_second_after_the_grace_period() {
    let stage = Stage::with(Trip::Hangs, Policy::new().lease(Duration::from_secs(3)));
    let run = stage.run("", "");
    stage.clock.settle().await;
    let executor = stage.executor.clone();
    let drain = tokio::spawn(async move { executor.drain(Duration::from_millis(500)).await });
    stage.clock.advance(Duration::from_secs(1)).await;
    assert_eq!(run.await.unwrap(), vec![Outcome::Ran; 3]);
    assert_eq!((stage.trips(), drain.await.unwrap().finished), ((1, 3), 3), "together, alone");
}
