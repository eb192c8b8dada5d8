//! Steps with a transaction of their own, over a store whose commits are scripted.
use std::any::Any;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::steps::{StepError, StepRecord};
use idempotent::store::{
    Claim, ClaimHandle, ClaimMode, ClaimRequest, Completion, Record, Release, Settled, StateKind, StoreCapabilities,
    Transactional,
};
use idempotent::transaction::{BorrowedTransaction, StepTransactionSource};
use idempotent::{Key, MemoryStore, Rejection, Store, StoreError, StoreErrorKind, step_in};
use idempotent_testkit::{SeededEntropy, VirtualClock};

use super::*;
use crate::common::{key_of, ms, runtime};

/// The effects of a transaction that is not committed yet.
#[derive(Debug, Default)]
struct Tx(Vec<&'static str>);

/// The scripted end of a commit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Commit {
    Done,
    Lost,
    RolledBack,
    /// Committed or not, and not answered.
    Unknown {
        committed: bool,
    },
    Hangs,
}

#[derive(Clone, Debug)]
struct Database {
    store: MemoryStore,
    committed: CommittedEffects,
    commit: Commit,
    /// The number of transactions that cannot be begun.
    refused: Arc<AtomicU32>,
}

type CommittedEffects = Arc<Mutex<Vec<&'static str>>>;

#[async_trait]
impl Store for Database {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.store.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.store.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        self.store.complete(held, done).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.store.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.store.capabilities().with_transact(self)
    }
}

impl Transactional for Database {
    fn transactional_run(&self, _: ClaimMode) -> Box<dyn Any + Send> {
        Box::new(())
    }
    fn step_transactions(&self) -> Box<dyn Any + Send> {
        let own: Arc<dyn StepTransactionSource<Tx>> = Arc::new(self.clone());
        Box::new(own)
    }
    fn transaction(&self) -> &'static str {
        "Tx"
    }
}

#[async_trait]
impl StepTransactionSource<Tx> for Database {
    async fn begin(&self) -> Result<Tx, StoreError> {
        match self.refused.fetch_update(SeqCst, SeqCst, |refused| refused.checked_sub(1)) {
            Ok(_) => Err(StoreError::new(StoreErrorKind::NotApplied)),
            Err(_) => Ok(Tx::default()),
        }
    }

    async fn commit(&self, transaction: Tx, held: &ClaimHandle, step: &StepRecord) -> Result<Settled, StoreError> {
        if matches!(self.commit, Commit::Done | Commit::Unknown { committed: true }) {
            self.committed.lock().unwrap().extend(transaction.0);
            let steps = self.store.capabilities().steps.unwrap();
            assert_eq!(steps.note(held, step, secs(60)).await?, Settled::Done);
        }
        match self.commit {
            Commit::Done => Ok(Settled::Done),
            Commit::Lost => Ok(Settled::Lost { now: StateKind::Absent }),
            Commit::RolledBack => Err(StoreError::new(StoreErrorKind::RolledBack)),
            Commit::Unknown { .. } => Err(StoreError::new(StoreErrorKind::Ambiguous)),
            Commit::Hangs => pending().await,
        }
    }
}

/// A database in which each run has an executor of its own.
struct Shop {
    clock: VirtualClock,
    database: Database,
    policy: Policy,
    undone: Arc<AtomicU32>,
}

impl Shop {
    fn new(policy: Policy) -> Self {
        let clock = VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let database =
            Database { store, committed: CommittedEffects::default(), commit: Commit::Done, refused: Arc::default() };
        Self { clock, database, policy, undone: Arc::default() }
    }

    fn executor(&self, commit: Commit) -> Executor {
        Executor::builder(Database { commit, ..self.database.clone() })
            .clock(Arc::new(self.clock.clone()))
            .entropy(Arc::new(SeededEntropy::new(1)))
            .policy(idempotent::Scene::Mq, self.policy)
            .build()
            .unwrap()
    }

    /// Runs a handler with the step `book`, and fails after the step with this error, if there is one.
    async fn run(&self, commit: Commit, fails: Option<AppError>) -> (Outcome, Result<usize, AppError>) {
        let undone = self.undone.clone();
        run_on(&self.executor(commit), || async move {
            let booked = step_in("book", async |mut tx: BorrowedTransaction<Tx>| {
                tx.0.push("book");
                Ok::<_, AppError>(tx.0.len())
            });
            let undo = move || async move {
                undone.fetch_add(1, SeqCst);
                Ok::<(), AppError>(())
            };
            let booked = booked.compensate(undo).await?;
            fails.map_or(Ok(booked), Err)
        })
        .await
    }

    /// The number of committed effects, and of compensations.
    fn effects(&self) -> (usize, u32) {
        (self.database.committed.lock().unwrap().len(), self.undone.load(SeqCst))
    }

    async fn kind(&self) -> StateKind {
        self.database.peek(&key_of("k")).await.unwrap().map_or(StateKind::Absent, |record| record.state.kind())
    }
}

/// Returns the kind of the store error of a step.
fn store_error(answer: Result<usize, AppError>) -> StoreErrorKind {
    match answer {
        Err(AppError::Idempotent(Rejection::Journal(StepError::Store { cause, .. }))) => cause.kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_committed_step_is_not_repeated_and_is_compensated_once() {
    on_a_clock(async |shop| {
        assert!(matches!(shop.run(Commit::Done, Some(AppError::NoStock)).await.0, Outcome::Released { .. }));
        assert_eq!(shop.effects(), (1, 0));
        let (outcome, answer) = shop.run(Commit::Done, Some(AppError::NoArticle)).await;
        assert_eq!((outcome, shop.effects()), (Outcome::Failed, (1, 1)), "{answer:?}");
    });
    on_a_clock(async |shop| {
        let (outcome, _) = shop.run(Commit::Done, Some(AppError::NoArticle)).await;
        assert_eq!((outcome, shop.effects()), (Outcome::Failed, (1, 1)));
    });
}

#[test]
fn a_step_that_was_rolled_back_leaves_no_record_and_is_not_compensated() {
    on_a_clock(async |shop| {
        let (outcome, answer) = shop.run(Commit::RolledBack, None).await;
        assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
        assert_eq!((store_error(answer), shop.kind().await), (StoreErrorKind::RolledBack, StateKind::Absent));
        assert_eq!(shop.run(Commit::Done, None).await.0, Outcome::Ran);
        assert_eq!(shop.effects(), (1, 0));
    });
}

#[test]
fn a_step_with_an_unknown_commit_keeps_its_record_for_the_next_run() {
    for committed in [true, false] {
        on_a_clock(async |shop| {
            let (outcome, answer) = shop.run(Commit::Unknown { committed }, None).await;
            assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
            assert_eq!((store_error(answer), shop.kind().await), (StoreErrorKind::Ambiguous, StateKind::Vacant));
            assert_eq!(shop.run(Commit::Done, None).await.0, Outcome::Ran);
            assert_eq!(shop.effects(), (1, 0), "{committed}");
        });
    }
}

#[test]
fn the_last_run_compensates_a_step_with_an_unknown_commit_if_the_step_was_committed() {
    for committed in [true, false] {
        on_a_clock_with(Policy::new().max_retries(0), async |shop| {
            let (outcome, _) = shop.run(Commit::Unknown { committed }, None).await;
            assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
            assert_eq!(shop.effects(), (usize::from(committed), u32::from(committed)));
        });
    }
    on_a_clock_with(Policy::new().max_retries(0), async |shop| {
        shop.run(Commit::RolledBack, None).await.1.unwrap_err();
        assert_eq!(shop.effects(), (0, 0));
    });
}

#[test]
fn a_commit_without_an_answer_is_given_up_at_the_guard_of_the_lease() {
    on_a_clock_with(Policy::new().heartbeat(Duration::ZERO).lease(secs(30)), async |shop| {
        let shop = Arc::new(shop);
        let run = tokio::spawn({
            let shop = shop.clone();
            async move { shop.run(Commit::Hangs, None).await }
        });
        shop.clock.settle().await;
        shop.clock.advance(secs(20)).await;
        assert!(!run.is_finished());
        shop.clock.advance(secs(20)).await;
        assert!(run.is_finished());
        let (outcome, _) = run.await.unwrap();
        assert!(!matches!(outcome, Outcome::Ran), "{outcome:?}");
        assert_eq!(shop.effects(), (0, 0));
    });
}

#[test]
fn a_step_of_a_superseded_run_reports_the_lost_lease() {
    on_a_clock(async |shop| {
        let (_, answer) = shop.run(Commit::Lost, None).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::LeaseLost))), "{answer:?}");
        assert_eq!(shop.effects(), (0, 0));
    });
}

#[test]
fn a_transaction_that_cannot_be_begun_is_retried() {
    on_a_clock(async |shop| {
        shop.database.refused.store(2, SeqCst);
        let shop = Arc::new(shop);
        let run = tokio::spawn({
            let shop = shop.clone();
            async move { shop.run(Commit::Done, None).await.0 }
        });
        shop.clock.settle().await;
        shop.clock.advance(ms(9)).await;
        assert!(!run.is_finished());
        shop.clock.advance(ms(1)).await;
        assert!(!run.is_finished());
        shop.clock.advance(ms(20)).await;
        assert!(run.is_finished());
        assert_eq!((run.await.unwrap(), shop.effects()), (Outcome::Ran, (1, 0)));
    });
}

#[test]
fn a_failed_step_and_one_that_keeps_its_transaction_are_rolled_back() {
    on_a_clock(async |shop| {
        let executor = shop.executor(Commit::Done);
        let fails = run_on(&executor, || async {
            step_in("book", async |mut tx: BorrowedTransaction<Tx>| {
                tx.0.push("book");
                Err::<usize, _>(AppError::NoStock)
            })
            .await
        });
        assert!(matches!(fails.await.1, Err(AppError::NoStock)));
        let kept = Arc::new(Mutex::new(None));
        let keeps = run_on(&executor, || async {
            step_in("book", async |tx: BorrowedTransaction<Tx>| {
                *kept.lock().unwrap() = Some(tx);
                Ok::<_, AppError>(1)
            })
            .await
        });
        assert_eq!(store_error(keeps.await.1), StoreErrorKind::RolledBack);
        assert_eq!((shop.effects(), shop.kind().await), ((0, 0), StateKind::Absent));
    });
}

#[test]
fn a_store_with_other_transactions_is_refused() {
    on_a_clock(async |shop| {
        let (_, answer) = run_on(&shop.executor(Commit::Done), || async {
            step_in("book", async |_: BorrowedTransaction<String>| Ok::<_, AppError>(1)).await
        })
        .await;
        let Err(AppError::Idempotent(Rejection::Journal(StepError::NoTransaction { why, .. }))) = answer else {
            panic!("{answer:?}")
        };
        assert!(why.contains("String") && why.contains("Database, which has Tx"), "{why}");
    });
}

fn on_a_clock(test: impl AsyncFnOnce(Shop)) {
    on_a_clock_with(Policy::new().max_retries(Policy::NO_LIMIT), test);
}

fn on_a_clock_with(policy: Policy, test: impl AsyncFnOnce(Shop)) {
    runtime().block_on(test(Shop::new(policy.jitter(0))));
}
