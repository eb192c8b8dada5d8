//! The store of one run in a transaction: its claim begins the transaction, its completion commits, and its release
//! rolls back.
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use idempotent_core::{
    Claim, ClaimHandle, ClaimMode, ClaimRequest, Completion, Key, Record, Release, ReleaseKind, Settled, State,
    StateKind, Store, StoreCapabilities, StoreError, StoreErrorKind, TransactionSource, TransactionalRun,
};
use sqlx::Transaction;

use super::commit::{CommitResult, LOOKUP_INTERVAL, commit, rollback_error};
use super::database::{EffectClaim, FinalWrite, InboxDatabase, text_of};
use super::step_transactions::abandon;
use crate::answer::TRIES;

/// The cause of a completion that changed no row in the transaction of its claim.
pub(crate) const RECORD_CHANGED: &str = "the record of the run is not there any more: a statement of the handler wrote to the \
     table of records, or undid the claim";

/// Implements [`Transactional::transactional_run`](idempotent_core::Transactional::transactional_run).
pub(crate) fn transactional_run<D: InboxDatabase>(store: &D, mode: ClaimMode) -> Box<dyn Any + Send> {
    let phase = Mutex::new(TransactionPhase::Closed);
    let own: Arc<dyn TransactionSource<Transaction<'static, D::Db>>> = Arc::new(TransactionStore {
        store: store.clone(),
        mode,
        retain: OnceLock::new(),
        request: Mutex::default(),
        effect: OnceLock::new(),
        phase,
    });
    Box::new(own)
}

struct TransactionStore<D: InboxDatabase> {
    store: D,
    mode: ClaimMode,
    retain: OnceLock<Duration>,
    /// The last request of a claim, which is needed to record a failure.
    request: Mutex<Option<ClaimRequest>>,
    /// The whole effect of the run, if it is one statement.
    effect: OnceLock<Box<D::Effect>>,
    phase: Mutex<TransactionPhase<D>>,
}

enum TransactionPhase<D: InboxDatabase> {
    /// The transaction has not begun, has ended, or is borrowed by its handler.
    Closed,
    Open(Transaction<'static, D::Db>),
    /// Claim, effect and record were committed together.
    Executed {
        rows: u64,
    },
    /// The commit runs in a separate task. Another call waits for the same task.
    Ending(Shared<BoxFuture<'static, CommitResult>>),
}

impl<D: InboxDatabase> fmt::Debug for TransactionStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionStore").field("store", &self.store).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl<D: InboxDatabase> TransactionStore<D> {
    fn phase(&self) -> MutexGuard<'_, TransactionPhase<D>> {
        // No code panics while it holds this lock.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self) -> MutexGuard<'_, Option<ClaimRequest>> {
        // No code panics while it holds this lock.
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Transaction<'static, D::Db>> {
        match std::mem::replace(&mut *self.phase(), TransactionPhase::Closed) {
            TransactionPhase::Open(transaction) => Some(transaction),
            _ => None,
        }
    }

    /// Rolls back the transaction, if it is open. Returns an error if the handler ended the transaction, or if that is
    /// unknown.
    async fn roll_back(&self) -> Result<(), StoreError> {
        let phase = std::mem::replace(&mut *self.phase(), TransactionPhase::Closed);
        match phase {
            TransactionPhase::Open(transaction) => {
                let store = self.store.clone();
                // In a separate task: if the future were dropped, the connection would return to its pool unchecked.
                let ending = tokio::spawn(async move { store.roll_back(transaction).await });
                ending.await.unwrap_or_else(|_| Err(runtime_ended()))
            }
            TransactionPhase::Ending(ending) => match ending.await {
                CommitResult::Ended(_) | CommitResult::Unknown => Err(runtime_ended()),
                CommitResult::Known(_) | CommitResult::RolledBack(_) => Ok(()),
            },
            TransactionPhase::Closed | TransactionPhase::Executed { .. } => Ok(()),
        }
    }

    /// Begins a transaction and claims the key. A claim that loses a race starts again, since no handler has run yet.
    async fn claim_inside(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if let Some(answer) = self.store.look_first(request).await? {
            return Ok(answer);
        }
        if let Some(effect) = self.effect.get() {
            let retain = self.retain.get().copied().unwrap_or_default();
            match self.store.claim_with(request, retain, effect).await? {
                EffectClaim::Executed { claim, rows } => {
                    *self.phase() = TransactionPhase::Executed { rows };
                    return Ok(claim);
                }
                EffectClaim::Answered(claim) => return Ok(claim),
                EffectClaim::NotExecuted => {}
            }
        }
        let mut last = None;
        for _ in 0..TRIES {
            let (store, request) = (self.store.clone(), request.clone());
            // If this future is dropped, the task continues, and the transaction is rolled back when the result is
            // dropped.
            let claiming = tokio::spawn(async move {
                let mut transaction = store.begin().await?;
                match store.claim_in(&mut transaction, &request).await {
                    Ok(claim @ Claim::Acquired(_)) => Ok((claim, Some(transaction))),
                    other => {
                        let _ = transaction.rollback().await;
                        other.map(|claim| (claim, None))
                    }
                }
            });
            match claiming.await.unwrap_or_else(|_| Err(runtime_ended())) {
                Ok((claim, transaction)) => {
                    if let Some(transaction) = transaction {
                        *self.phase() = TransactionPhase::Open(transaction);
                    }
                    return Ok(claim);
                }
                Err(error) if error.kind() == StoreErrorKind::RolledBack => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        let because = last.as_ref().map(text_of).unwrap_or_default();
        Err(StoreError::new(StoreErrorKind::NotApplied).because(because))
    }

    /// Claims with a lease, and then begins the transaction of the handler.
    async fn claim_leased(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let claim = self.store.claim(request).await?;
        if let Claim::Acquired(_) = claim {
            let begun = self.store.begin().await;
            // The lease exists: the caller releases it, as after a claim without an answer.
            let begun = begun.map_err(|error| {
                StoreError::new(StoreErrorKind::Ambiguous)
                    .because(format!("the key was claimed, but its transaction did not begin: {error}"))
            });
            *self.phase() = TransactionPhase::Open(begun?);
        }
        Ok(claim)
    }

    /// Completes and commits in a separate task: if the future were dropped, the result would be unknown.
    fn ending(&self, held: &ClaimHandle, completion: &Completion) -> Option<Shared<BoxFuture<'static, CommitResult>>> {
        let mut phase = self.phase();
        if let TransactionPhase::Ending(ending) = &*phase {
            return Some(ending.clone());
        }
        let TransactionPhase::Open(transaction) = std::mem::replace(&mut *phase, TransactionPhase::Closed) else {
            return None;
        };
        let task = tokio::spawn(end(self.store.clone(), transaction, self.mode, held.clone(), completion.clone()));
        let ending = async { task.await.unwrap_or(CommitResult::Unknown) }.boxed().shared();
        *phase = TransactionPhase::Ending(ending.clone());
        Some(ending)
    }

    /// Records a permanent or final failure after the rollback.
    async fn remember(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let request = self.request().clone();
        let Some(request) = request.filter(|request| request.owner == held.owner) else {
            return Ok(Settled::Lost { now: StateKind::Absent });
        };
        match self.store.claim(&request).await? {
            Claim::Acquired(grant) => {
                let own = ClaimHandle { fencing: Some(grant.fencing), ..held.clone() };
                self.store.release(&own, release).await
            }
            Claim::Failed { .. } => Ok(Settled::Lost { now: StateKind::Failed }),
            Claim::Dead(_) => Ok(Settled::Lost { now: StateKind::Dead }),
            _ => Ok(Settled::Lost { now: StateKind::Consuming }),
        }
    }
}

async fn end<D: InboxDatabase>(
    store: D,
    mut transaction: Transaction<'static, D::Db>,
    mode: ClaimMode,
    held: ClaimHandle,
    completion: Completion,
) -> CommitResult {
    if mode == ClaimMode::Inside
        && let Some(completing) = store.with_the_commit(&held, &completion)
    {
        return commit(store, transaction, FinalWrite::With(completing)).await;
    }
    let completing = async {
        store.stands(&mut transaction).await?;
        store.complete_in(&mut transaction, &held, &completion).await
    };
    let failed = match completing.await {
        Ok(Settled::Done) => return commit(store, transaction, FinalWrite::Written).await,
        Ok(lost) => CommitResult::Known(lost),
        Err(error) => CommitResult::failed(&error),
    };
    let _ = store.roll_back(transaction).await;
    match failed {
        // No other process takes over before the commit, nor has one if the owner still holds the lease.
        CommitResult::Known(_) if mode == ClaimMode::Inside || holds(&store, &held).await => {
            CommitResult::RolledBack(RECORD_CHANGED.into())
        }
        failed => failed,
    }
}

/// Returns whether the owner holds the key. If the record cannot be read, returns false.
async fn holds<D: InboxDatabase>(store: &D, held: &ClaimHandle) -> bool {
    let record = store.peek(&held.key).await.ok().flatten();
    record.is_some_and(|it| matches!(it.state, State::Consuming { owner, .. } if held.is(owner, it.fencing)))
}

/// Returns the error for a task that was cancelled: nothing was committed.
fn runtime_ended() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied).because("the runtime that executed the call has ended: retry")
}

impl<D: InboxDatabase> Drop for TransactionStore<D> {
    fn drop(&mut self) {
        if let Some(transaction) = self.take() {
            abandon(&self.store, transaction);
        }
    }
}

#[async_trait]
impl<D: InboxDatabase> Store for TransactionStore<D> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        *self.request() = Some(request.clone());
        match self.mode {
            ClaimMode::Inside => self.claim_inside(request).await,
            ClaimMode::Leased => self.claim_leased(request).await,
        }
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.store.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        if self.joined().is_some() {
            return Ok(Settled::Done);
        }
        let Some(ending) = self.ending(held, completion) else {
            return Err(rollback_error("the transaction ended before its run"));
        };
        if let Some(answer) = ending.await.answer() {
            return answer;
        }
        loop {
            match self.store.is_committed(held).await? {
                Some(true) => return Ok(Settled::Done),
                Some(false) => return Err(rollback_error("the connection failed before the commit")),
                // The server process of the lost connection is still working.
                None => tokio::time::sleep(LOOKUP_INTERVAL).await,
            }
        }
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        if self.joined().is_some() {
            return Ok(Settled::Lost { now: StateKind::Consumed });
        }
        let rolled_back = self.roll_back().await;
        let settled = match (self.mode, &rolled_back) {
            (ClaimMode::Inside, Ok(())) => Settled::Lost { now: StateKind::Absent },
            // A statement of the handler may have committed the claim.
            (ClaimMode::Inside, Err(_)) | (ClaimMode::Leased, _) => self.store.release(held, release).await?,
        };
        let settled = match (self.mode, settled, release.kind) {
            (
                ClaimMode::Inside,
                Settled::Lost { now: StateKind::Absent },
                ReleaseKind::MarkFailed | ReleaseKind::MarkDead,
            ) => self.remember(held, release).await?,
            // The rollback has removed the claim.
            (ClaimMode::Inside, Settled::Lost { now: StateKind::Absent }, _) => Settled::Done,
            (_, settled, _) => settled,
        };
        match rolled_back {
            Err(ended) if ended.kind() == StoreErrorKind::TransactionEnded => Err(ended),
            _ => Ok(settled),
        }
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

impl<D: InboxDatabase> TransactionalRun for TransactionStore<D> {
    fn retains(&self, retain: Duration) {
        let _ = self.retain.set(retain);
    }

    fn renews(&self) -> bool {
        self.mode == ClaimMode::Leased && !D::ONE_WRITER
    }
}

impl<D: InboxDatabase> TransactionSource<Transaction<'static, D::Db>> for TransactionStore<D> {
    fn lend(&self) -> Option<Transaction<'static, D::Db>> {
        self.take()
    }

    fn take_back(&self, transaction: Transaction<'static, D::Db>) {
        *self.phase() = TransactionPhase::Open(transaction);
    }

    fn join_claim(&self, statement: Box<dyn Any + Send>) {
        if let Ok(effect) = statement.downcast() {
            let _ = self.effect.set(effect);
        }
    }

    fn joined(&self) -> Option<u64> {
        match *self.phase() {
            TransactionPhase::Executed { rows } => Some(rows),
            _ => None,
        }
    }
}
