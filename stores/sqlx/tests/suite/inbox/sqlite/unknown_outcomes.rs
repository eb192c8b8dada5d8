//! Steps with a lost commit response, or with a rejected record.
use std::any::Any;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    BorrowedTransaction, Claim, ClaimHandle, ClaimMode, ClaimRequest, Completion, DefaultReply, Executor, Handler,
    Json, Key, Outcome, Record, Release, Settled, StepRecord, StepState, StepStore, StepTransactionSource, Store,
    StoreCapabilities, StoreError, StoreErrorKind, StoredSteps, Transactional, step, step_in,
};
use idempotent_sqlx::SqliteStore;

use super::world::{Tx, World};
use crate::inbox::{Failure, call, released};

/// Commits steps or not, and says that it does not know.
#[derive(Clone, Debug)]
struct Silent {
    store: SqliteStore,
    commits: bool,
}

#[async_trait]
impl Store for Silent {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.store.claim(request).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.store.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.store.complete(held, completion).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.store.release(held, release).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.store.capabilities().with_transact(self).with_steps(self)
    }
}

#[async_trait]
impl StepStore for Silent {
    async fn steps(&self, held: &ClaimHandle, keep: Duration) -> Result<StoredSteps, StoreError> {
        self.store.capabilities().steps.unwrap().steps(held, keep).await
    }

    /// Rejects the notes of completed steps.
    async fn note(&self, held: &ClaimHandle, step: &StepRecord, keep: Duration) -> Result<Settled, StoreError> {
        if step.state == StepState::Done {
            return Err(StoreError::new(StoreErrorKind::Denied));
        }
        self.store.capabilities().steps.unwrap().note(held, step, keep).await
    }
}

impl Transactional for Silent {
    fn transactional_run(&self, _: ClaimMode) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn step_transactions(&self) -> Box<dyn Any + Send> {
        let own: Arc<dyn StepTransactionSource<Tx>> = Arc::new(self.clone());
        Box::new(own)
    }

    fn transaction(&self) -> &'static str {
        "none"
    }
}

#[async_trait]
impl StepTransactionSource<Tx> for Silent {
    async fn begin(&self) -> Result<Tx, StoreError> {
        self.within().begin().await
    }

    async fn commit(&self, transaction: Tx, held: &ClaimHandle, step: &StepRecord) -> Result<Settled, StoreError> {
        if self.commits {
            assert_eq!(self.within().commit(transaction, held, step).await.unwrap(), Settled::Done);
        }
        Err(StoreError::new(StoreErrorKind::Ambiguous))
    }
}

impl Silent {
    fn within(&self) -> Arc<dyn StepTransactionSource<Tx>> {
        let within = self.store.capabilities().transact.unwrap().step_transactions();
        *within.downcast().unwrap()
    }
}

/// A compensation that counts its calls.
fn counted(undone: &Arc<AtomicU32>) -> impl FnOnce() -> Ready<Result<(), Failure>> + use<> {
    let undone = undone.clone();
    move || {
        undone.fetch_add(1, SeqCst);
        ready(Ok(()))
    }
}

#[tokio::test]
async fn the_next_run_finds_what_became_of_it() {
    let world = World::new().await;
    let run = async |executor: &Executor| {
        let charge = || async {
            let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
                Ok::<_, Failure>(world.effect(&mut tx, "a").await?)
            });
            charge.await
        };
        Outcome::capture(executor.run(call("a"), Handler::<DefaultReply, Json, _, _>::new(charge))).await
    };
    let (answer, outcome) = run(&Executor::new(Silent { store: world.store.clone(), commits: true })).await;
    answer.unwrap_err();
    released(outcome);
    let (answer, outcome) = run(&world.executor).await;
    answer.unwrap();
    assert_eq!((outcome, world.effects("a").await), (Some(Outcome::Ran), 1));
}

#[tokio::test]
async fn a_failed_run_undoes_the_steps_that_took_effect_and_nothing_more() {
    for commits in [true, false] {
        let (world, undone) = (World::new().await, Arc::new(AtomicU32::new(0)));
        let executor = Executor::new(Silent { store: world.store.clone(), commits });
        let charge = || async {
            let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
                Ok::<_, Failure>(world.effect(&mut tx, "a").await?)
            });
            charge.compensate(counted(&undone)).await
        };
        let handler = Handler::<DefaultReply, Json, _, _>::new(charge).permanent(|_: &Failure| true);
        let (answer, outcome) = Outcome::capture(executor.run(call("a"), handler)).await;
        answer.unwrap_err();
        assert_eq!((outcome, world.effects("a").await), (Some(Outcome::Failed), i64::from(commits)));
        assert_eq!(undone.load(SeqCst), u32::from(commits));
    }
}

#[tokio::test]
async fn a_step_without_a_record_is_undone() {
    let (world, undone) = (World::new().await, Arc::new(AtomicU32::new(0)));
    let executor = Executor::new(Silent { store: world.store.clone(), commits: true });
    let charge = || async {
        let charge = step("charge", async || Ok::<_, Failure>(()));
        charge.compensate(counted(&undone)).await
    };
    let handler = Handler::<DefaultReply, Json, _, _>::new(charge).permanent(|_: &Failure| true);
    let (answer, outcome) = Outcome::capture(executor.run(call("a"), handler)).await;
    assert!(matches!(answer, Err(Failure::Rejected(_))), "{answer:?}");
    assert_eq!((outcome, undone.load(SeqCst)), (Some(Outcome::Failed), 1));
}
