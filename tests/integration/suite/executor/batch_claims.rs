//! Claims of a batch in one request, and of items that the request does not settle.
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::observe::{Event, RunInfo};
use idempotent::store::{
    Batch, Claim, ClaimHandle, ClaimRequest, Completion, InFlight, Record, Release, Settled, StoreCapabilities,
};
use idempotent::{
    BatchItem, Call, Executor, Key, MemoryStore, Observer, Outcome, Policy, Scene, Store, StoreError, StoreErrorKind,
};
use idempotent_testkit::VirtualClock;

use crate::common::{AppError, PlainHandler, batch_of, id, key_of, ms, runtime, secs};

/// The scripted answer to the claims of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Granted,
    /// Granted, but reported as busy.
    Busy,
    Refused,
    /// Granted, and never answered.
    Silent,
}

#[derive(Debug)]
struct Claims {
    inner: MemoryStore,
    answer: Answer,
    together: AtomicU32,
    alone: AtomicU32,
    released: AtomicU32,
}

#[async_trait]
impl Store for Claims {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.alone.fetch_add(1, SeqCst);
        self.inner.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        self.inner.complete(held, done).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.released.fetch_add(1, SeqCst);
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
impl Batch for Claims {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        self.together.fetch_add(1, SeqCst);
        let mut answers = Vec::new();
        for request in requests {
            answers.push(match self.answer {
                Answer::Refused => Err(StoreError::new(StoreErrorKind::NotApplied)),
                Answer::Granted => self.inner.claim(request).await,
                Answer::Busy => self.inner.claim(request).await.map(|_| Claim::InFlight(InFlight::Busy)),
                Answer::Silent => self.inner.claim(request).await,
            });
        }
        match self.answer {
            Answer::Silent => pending().await,
            _ => answers,
        }
    }
    async fn renew_all(&self, _: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        pending().await
    }
    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        let mut answers = Vec::new();
        for (held, done) in done {
            answers.push(self.inner.complete(held, done).await);
        }
        answers
    }
}

/// An observer that keeps the answered requests: the step, whether the report names the item `a`, and the success.
#[derive(Clone, Debug, Default)]
struct Answered(Arc<Mutex<Vec<AnsweredRequest>>>);

type AnsweredRequest = (&'static str, bool, bool);

impl Observer for Answered {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::StoreAnswered { step, error, .. } = event {
            self.0.lock().unwrap().push((step, run.key == Some(&key_of("a")), error.is_none()));
        }
    }

    fn wants_timing(&self) -> bool {
        true
    }
}

struct Stage {
    clock: VirtualClock,
    store: Arc<Claims>,
    answered: Answered,
    /// The remaining leases of the items when the handler began.
    remaining: Arc<Mutex<Vec<Duration>>>,
}

impl Stage {
    fn new(answer: Answer) -> Self {
        Self::with_room(answer, usize::MAX)
    }

    fn with_room(answer: Answer, records: usize) -> Self {
        let clock = VirtualClock::new();
        let inner = MemoryStore::builder().clock(Arc::new(clock.clone())).max_entries(records).build();
        let store = Arc::new(Claims { inner, answer, together: 0.into(), alone: 0.into(), released: 0.into() });
        Self { clock, store, answered: Answered::default(), remaining: Arc::default() }
    }

    /// Runs a batch of two items with leases of 30 s and 9 s.
    async fn run(&self) -> tokio::task::JoinHandle<Vec<Outcome>> {
        let executor = Executor::builder(self.store.clone())
            .clock(Arc::new(self.clock.clone()))
            .observer(self.answered.clone())
            .policy(Scene::Mq, Policy::new().jitter(0))
            .build()
            .unwrap();
        let remaining = self.remaining.clone();
        let handler = PlainHandler::batch(move |items: Vec<BatchItem<u32>>| async move {
            remaining.lock().unwrap().extend(items.iter().map(|item| item.lease.remaining()));
            items.iter().map(|item| Ok::<_, AppError>(item.item)).collect()
        });
        let call = |key, lease| Call::new(id(key)).policy(Policy::new().lease(lease));
        let items = vec![(call("a", secs(30)), 1), (call("b", secs(9)), 2)];
        let run = tokio::spawn(async move {
            executor.run_batch(items, handler).await.into_iter().map(|answer| answer.outcome).collect()
        });
        self.clock.settle().await;
        run
    }

    fn requests(&self) -> (u32, u32) {
        (self.store.together.load(SeqCst), self.store.alone.load(SeqCst))
    }
}

#[test]
fn a_batch_is_claimed_in_one_request_which_is_reported_once() {
    runtime().block_on(async {
        let stage = Stage::new(Answer::Granted);
        assert_eq!(stage.run().await.await.unwrap(), [Outcome::Ran, Outcome::Ran]);
        assert_eq!(stage.requests(), (1, 0), "together, alone");
        assert_eq!(*stage.answered.0.lock().unwrap(), [("claim", true, true), ("complete", true, true)]);
        // A tenth of a lease is a safety margin.
        assert_eq!(*stage.remaining.lock().unwrap(), [secs(27), ms(8_100)]);
    });
}

#[test]
fn items_that_the_request_does_not_settle_are_claimed_alone() {
    for answer in [Answer::Busy, Answer::Refused] {
        runtime().block_on(async {
            let stage = Stage::new(answer);
            assert_eq!(stage.run().await.await.unwrap(), [Outcome::Ran, Outcome::Ran], "{answer:?}");
            assert_eq!(stage.requests(), (1, 2), "together, alone: {answer:?}");
        });
    }
}

/// No request was applied, so no key has to be released.
#[test]
fn a_full_store_refuses_an_item_and_gets_no_release() {
    runtime().block_on(async {
        let stage = Stage::with_room(Answer::Refused, 1);
        stage.store.inner.claim(&ClaimRequest::new(key_of("other")).unwrap()).await.unwrap();
        let run = stage.run().await;
        // A refused claim is repeated after some milliseconds.
        stage.clock.advance(secs(1)).await;
        assert_eq!(run.await.unwrap(), [(); 2].map(|()| Outcome::StoreDown(StoreErrorKind::NotApplied)));
        stage.clock.settle().await;
        assert_eq!(stage.store.released.load(SeqCst), 0);
    });
}

/// The leases of the items may have begun with the request of the batch.
#[test]
fn a_request_without_an_answer_ends_after_a_third_of_the_shortest_lease_and_the_leases_count_from_it() {
    runtime().block_on(async {
        let stage = Stage::new(Answer::Silent);
        let run = stage.run().await;
        stage.clock.advance(ms(2_999)).await;
        assert_eq!(stage.requests(), (1, 0), "together, alone");
        stage.clock.advance(ms(1)).await;
        assert_eq!(stage.requests(), (1, 2), "together, alone");
        assert_eq!(run.await.unwrap(), [Outcome::Ran, Outcome::Ran]);
        let remaining = stage.remaining.lock().unwrap().clone();
        assert!(remaining[0] <= secs(24) && remaining[1] <= ms(5_100), "{remaining:?}");
        assert_eq!(stage.answered.0.lock().unwrap()[0], ("claim", true, false));
    });
}

/// Both deliveries are retried, and the store decides between them.
#[test]
fn a_duplicate_of_a_failed_item_is_retried_after_the_same_delay() {
    runtime().block_on(async {
        let stage = Stage::new(Answer::Granted);
        let policy = Policy::new().jitter(0).retry_delay(secs(7)).retry_delay_max(secs(7));
        let executor = Executor::builder(stage.store.clone()).clock(Arc::new(stage.clock.clone()));
        let executor = executor.policy(Scene::Mq, policy).build().unwrap();
        let handler = batch_of(|_| Err::<u32, _>(AppError::NoStock));
        let answers = executor.run_batch(vec![(Call::new(id("k")), 1), (Call::new(id("k")), 2)], handler).await;
        let outcomes: Vec<_> = answers.into_iter().map(|answer| answer.outcome).collect();
        let retry_after = secs(7);
        assert_eq!(outcomes, [Outcome::Released { retry_after }, Outcome::InFlight { retry_after }]);
    });
}
