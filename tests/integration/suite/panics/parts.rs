//! Panics in other parts that the application provides: keys, split answers, steps, and stores.
use super::*;
use async_trait::async_trait;
use idempotent::key::Parts;
use idempotent::store::{Claim, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities};
use idempotent::{Json, Key, KeyPart, Store, StoreError, idempotent, step};
use idempotent_core::{ClaimHandle, Lease};

#[test]
fn a_key_that_panics_reaches_the_caller_before_the_claim() {
    #[idempotent(key = order.first().copied().unwrap_or_else(panics::<u32>), with = executor)]
    async fn charge(executor: &Executor, order: Vec<u32>) -> Result<u32, AppError> {
        Ok(order[0])
    }
    /// A part of a key whose own code panics.
    struct Account;
    impl KeyPart for Account {
        fn write_to(&self, _: &mut Parts) {
            panics()
        }
    }
    #[idempotent(key = account, with = executor)]
    async fn close(executor: &Executor, account: Account) -> Result<(), AppError> {
        let Account = account;
        Ok(())
    }
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        assert!(AssertUnwindSafe(charge(&worker.executor, Vec::new())).catch_unwind().await.is_err());
        assert!(AssertUnwindSafe(close(&worker.executor, Account)).catch_unwind().await.is_err());
        let counts = worker.executor.counts();
        assert_eq!((counts.deliveries(), counts.ended(), world.asked(StoreOperation::Claim).len()), (0, 0, 0));
    });
}

/// A strategy that panics while it splits an answer.
struct BreaksSplit;

impl ResponseShape for BreaksSplit {
    type Output<R> = R;
}

impl ReplyStrategy<u32> for BreaksSplit {
    type Value = u32;
    type Failure = u32;

    async fn split(_: u32) -> HandlerOutcome<u32, u32> {
        panics()
    }
    fn value(value: u32) -> u32 {
        value
    }
    fn replayed(value: u32) -> u32 {
        value
    }
    fn failure(failure: u32) -> u32 {
        failure
    }
}

#[test]
fn a_panic_while_an_answer_is_split_frees_the_key() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let handler = Handler::<BreaksSplit, Json, _, _>::rejecting(|| ready(7_u32), |_| 0);
        let run = worker.executor.run(Call::new(id("k")), handler);
        assert!(AssertUnwindSafe(run).catch_unwind().await.is_err());
        let kind = world.record("k").await.unwrap().state.kind();
        assert_eq!((kind, worker.executor.counts().of("released")), (StateKind::Vacant, 1));
    });
}

#[test]
fn a_codec_of_a_step_that_panics_fails_the_step() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let handler = PlainHandler::new(|| async {
            step("one", || async { Ok::<_, AppError>("encode") }).codec::<BreaksCodec>().await.map(str::len)
        });
        let answer = worker.executor.run(Call::new(id("k")), handler).await;
        let text = answer.unwrap_err().to_string();
        assert!(text.contains("the codec panicked"), "{text}");
        assert_eq!(worker.executor.counts().ended(), 1);
    });
}

#[test]
fn a_compensation_that_panics_is_repeated_by_the_next_run() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().max_retries(3));
        let undone = Arc::new(AtomicU32::new(0));
        let mut outcomes = Vec::new();
        for _ in 0..2 {
            let undone = undone.clone();
            let handler = PlainHandler::new(move || async move {
                let undo = move || async move {
                    assert!(undone.fetch_add(1, SeqCst) > 0, "as told");
                    Ok::<_, AppError>(())
                };
                step("one", || async { Ok::<_, AppError>(1_u32) }).compensate(undo).await?;
                Err::<u32, _>(AppError::NoStock)
            });
            let run = worker.executor.run(Call::new(id("k")), handler.permanent(|_| true));
            outcomes.push(Outcome::capture(run).await.1.unwrap());
        }
        assert!(matches!(outcomes[..], [Outcome::Released { .. }, Outcome::Failed]), "{outcomes:?}");
        assert_eq!(undone.load(SeqCst), 2);
    });
}

/// A store that panics once at each kind of call for one key.
#[derive(Debug)]
struct PanickingStore(idempotent_testkit::FaultStore, Key, Mutex<Vec<&'static str>>);

impl PanickingStore {
    fn panics_at(&self, call: &'static str, key: &Key) {
        let mut calls = self.2.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_due = *key == self.1 && calls.contains(&call);
        calls.retain(|due| *due != call || *key != self.1);
        drop(calls);
        assert!(!is_due, "as told");
    }
}

#[async_trait]
impl Store for PanickingStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.panics_at("claim", &request.key);
        self.0.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: std::time::Duration) -> Result<Settled, StoreError> {
        self.panics_at("renew", &held.key);
        self.0.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.panics_at("complete", &held.key);
        self.0.complete(held, completion).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.0.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

#[test]
fn a_store_that_panics_loses_no_count_and_no_other_lease() {
    on_memory(async |world| {
        let key = crate::common::key_of("k");
        let store = PanickingStore(world.store.worker("a"), key, Mutex::new(vec!["claim", "renew", "complete"]));
        let clock = world.clock.clone();
        let policy = Policy::new().lease(secs(3)).jitter(0);
        let builder = Executor::builder(store).clock(Arc::new(clock.clone()));
        let executor = builder.policy(idempotent::Scene::Mq, policy).build().unwrap();
        let run = |key: &'static str| {
            let (executor, clock) = (executor.clone(), clock.clone());
            tokio::spawn(async move {
                let handler = PlainHandler::new(|| async move {
                    clock.sleep_until(clock.now() + secs(10)).await;
                    Ok::<_, AppError>(Lease::current().is_some_and(|lease| !lease.is_lost()))
                });
                Outcome::capture(executor.run(Call::new(id(key)), handler)).await
            })
        };
        assert!(run("k").await.unwrap_err().is_panic());
        let runs = ["k", "other"].map(run);
        world.clock.settle().await;
        world.clock.advance(secs(20)).await;
        for ended in runs {
            let (answer, outcome) = ended.await.unwrap();
            assert_eq!((answer.unwrap(), outcome), (true, Some(Outcome::Ran)), "ten seconds with a lease of three");
        }
        let counts = executor.counts();
        assert_eq!((counts.deliveries(), counts.ended(), counts.of("ran")), (3, 3, 2), "{counts:?}");
    });
}
