//! Runs in transactions, over a store whose commits are scripted.
use std::any::Any;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::executor::DeliveryContext;
use idempotent::steps::StepError;
use idempotent::store::{
    Claim, ClaimHandle, ClaimMode, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities, Transactional,
};
use idempotent::transaction::{TransactionSource, TransactionalRun};
use idempotent::{
    Call, Executor, FencingToken, Key, Lease, MemoryStore, Outcome, Policy, Rejection, Scene, Store, StoreError,
    StoreErrorKind, step,
};
use idempotent_testkit::VirtualClock;

use crate::common::{AppError, PlainHandler, id, runtime, secs};

/// The scripted end of a commit.
#[derive(Clone, Copy, Debug)]
enum Commit {
    Done,
    Fails(StoreErrorKind),
    Hangs,
}

/// A database, and each run in one of its transactions.
#[derive(Clone, Debug)]
struct Database {
    store: MemoryStore,
    commit: Commit,
    /// The number of rows of a statement that was executed with the claim.
    joined: Arc<Mutex<Option<u64>>>,
    /// The fencing tokens of the handles that were released.
    released: Arc<Mutex<Vec<Option<FencingToken>>>>,
}

#[async_trait]
impl Store for Database {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.store.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.store.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        match self.commit {
            Commit::Done => self.store.complete(held, done).await,
            Commit::Fails(kind) => Err(StoreError::new(kind)),
            Commit::Hangs => pending().await,
        }
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let settled = self.store.release(held, release).await;
        self.released.lock().unwrap().push(held.fencing);
        settled
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_transact(self)
    }
}

/// A transaction without any effect of its own.
struct Tx;

impl Transactional for Database {
    fn transactional_run(&self, _: ClaimMode) -> Box<dyn Any + Send> {
        let own: Arc<dyn TransactionSource<Tx>> = Arc::new(self.clone());
        Box::new(own)
    }
    fn step_transactions(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }
    fn transaction(&self) -> &'static str {
        "Tx"
    }
}

impl TransactionalRun for Database {
    fn retains(&self, _: Duration) {}
    fn renews(&self) -> bool {
        false
    }
}

impl TransactionSource<Tx> for Database {
    fn lend(&self) -> Option<Tx> {
        Some(Tx)
    }
    fn take_back(&self, _: Tx) {}
    fn join_claim(&self, statement: Box<dyn Any + Send>) {
        *self.joined.lock().unwrap() = statement.downcast().ok().map(|rows| *rows);
    }
    fn joined(&self) -> Option<u64> {
        *self.joined.lock().unwrap()
    }
}

/// A transaction whose database cannot execute a statement with the claim.
struct PlainTx;

impl TransactionSource<PlainTx> for Database {
    fn lend(&self) -> Option<PlainTx> {
        Some(PlainTx)
    }
    fn take_back(&self, _: PlainTx) {}
}

fn database(commit: Commit, clock: &VirtualClock) -> Database {
    let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    Database { store, commit, joined: Arc::default(), released: Arc::default() }
}

fn executor(commit: Commit, clock: &VirtualClock) -> Executor {
    executor_over(database(commit, clock), clock)
}

fn executor_over(database: Database, clock: &VirtualClock) -> Executor {
    let policy = Policy::new().jitter(0).lease(secs(30)).settle_timeout(secs(2)).release_on_cancel(true);
    let executor = Executor::builder(database).clock(Arc::new(clock.clone()));
    executor.policy(Scene::Mq, policy).build().unwrap()
}

/// Runs a handler in a transaction.
async fn run<F, Fut>(executor: &Executor, mode: ClaimMode, handler: F) -> (Result<u32, AppError>, Outcome)
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<u32, AppError>>,
{
    let (call, _transaction) = Call::new(id("k")).within::<Tx>(executor, mode);
    let run = executor.run(call, PlainHandler::new(handler));
    let (answer, outcome) = Outcome::capture(run).await;
    (answer, outcome.unwrap())
}

/// Returns the number of the attempt that the handler sees.
async fn attempt() -> Result<u32, AppError> {
    Ok(Lease::current().unwrap().attempt())
}

/// The record of such a run is rolled back, so only the delivery knows how often the message was tried. A nested run
/// is no delivery.
#[test]
fn a_run_uses_the_attempt_of_its_delivery_if_a_rollback_forgets_its_own() {
    runtime().block_on(async {
        let clock = VirtualClock::new();
        let delivery = || DeliveryContext::new().attempt(7);
        for (mode, expected) in [(ClaimMode::Inside, 7), (ClaimMode::Leased, 1)] {
            let executor = executor(Commit::Done, &clock);
            let (seen, _) = executor.scope_of_delivery(delivery(), run(&executor, mode, attempt)).await;
            assert_eq!(seen.unwrap(), expected, "{mode:?}");
        }
        let executor = executor(Commit::Done, &clock);
        let outer = PlainHandler::new(|| async {
            assert_eq!(attempt().await.unwrap(), 1, "without a transaction");
            run(&executor, ClaimMode::Inside, attempt).await.0
        });
        let nested = executor.scope_of_delivery(delivery(), executor.run(Call::new(id("outer")), outer)).await;
        assert_eq!(nested.unwrap(), 1, "nested");
    });
}

#[test]
fn a_commit_that_was_rolled_back_is_a_failed_run_and_another_failure_is_unrecorded() {
    runtime().block_on(async {
        let clock = VirtualClock::new();
        let rolled_back = executor(Commit::Fails(StoreErrorKind::RolledBack), &clock);
        let (answer, outcome) = run(&rolled_back, ClaimMode::Leased, || async { Ok(1) }).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::RolledBack { .. }))), "{answer:?}");
        assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
        let denied = executor(Commit::Fails(StoreErrorKind::Denied), &clock);
        let (answer, outcome) = run(&denied, ClaimMode::Leased, || async { Ok(1) }).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Unrecorded { .. }))), "{answer:?}");
        assert_eq!(outcome, Outcome::Unrecorded);
    });
}

/// The transaction ends with its call, so a background task could not commit it. `settle_timeout` is 2 s here.
#[test]
fn a_commit_without_an_answer_is_awaited_by_its_call_until_the_guard_of_the_lease() {
    runtime().block_on(async {
        let clock = VirtualClock::new();
        let executor = executor(Commit::Hangs, &clock);
        let task = tokio::spawn(async move { run(&executor, ClaimMode::Leased, || async { Ok(1) }).await.1 });
        clock.settle().await;
        clock.advance(secs(26)).await;
        assert!(!task.is_finished());
        clock.advance(secs(1)).await;
        assert_eq!(task.await.unwrap(), Outcome::Unrecorded);
    });
}

#[test]
fn a_step_in_the_transaction_of_its_run_has_a_name_of_its_own() {
    runtime().block_on(async {
        let executor = executor(Commit::Done, &VirtualClock::new());
        let book = || step("book", || async { Ok::<u32, AppError>(1) }).in_transaction();
        let (answer, outcome) = run(&executor, ClaimMode::Leased, || async { Ok(book().await? + book().await?) }).await;
        let Err(AppError::Idempotent(Rejection::Journal(StepError::Repeated { step }))) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((&*step, matches!(outcome, Outcome::Dead { .. })), ("book", true), "{outcome:?}");
    });
}

/// The owner token alone would also release a later grant of the same token.
#[test]
fn a_dropped_run_releases_its_own_grant_only() {
    runtime().block_on(async {
        let clock = VirtualClock::new();
        let database = database(Commit::Done, &clock);
        let (executor, (sender, started)) = (executor_over(database.clone(), &clock), tokio::sync::oneshot::channel());
        let task = tokio::spawn(async move {
            let handler = || async move {
                sender.send(Lease::current().unwrap().fencing()).unwrap();
                pending().await
            };
            run(&executor, ClaimMode::Leased, handler).await.1
        });
        let fencing = started.await.unwrap();
        task.abort();
        task.await.unwrap_err();
        clock.settle().await;
        assert_eq!(*database.released.lock().unwrap(), [Some(fencing)]);
    });
}

#[test]
fn a_statement_is_executed_with_the_claim_if_the_database_can_do_that() {
    let database = database(Commit::Done, &VirtualClock::new());
    assert_eq!(TransactionSource::<PlainTx>::joined(&database), None);
    let executor = executor_over(database, &VirtualClock::new());
    let (_call, handle) = Call::new(id("k")).within::<Tx>(&executor, ClaimMode::Inside);
    assert_eq!(handle.joined(), None);
    handle.join_claim(Box::new(5_u64));
    assert_eq!(handle.joined(), Some(5));
}
