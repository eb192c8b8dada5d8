//! The transactions of steps: an effect and the record of its step are committed together.
use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::{
    BorrowedTransaction, ClaimHandle, Settled, StepRecord, StepState, StepTransactionSource, StoreError,
    StoreErrorKind, StoredSteps,
};
use sqlx::Transaction;

use super::commit::{CommitResult, LOOKUP_INTERVAL, commit, rollback_error};
use super::database::{FinalWrite, InboxDatabase};

/// The transaction of a [`step_in`](idempotent_core::step_in()), borrowed by the step. Dropping it returns it, and it
/// ends with the step: the step cannot commit it.
pub type StepTransaction<Db> = BorrowedTransaction<Transaction<'static, Db>>;

/// Implements [`Transactional::step_transactions`](idempotent_core::Transactional::step_transactions).
pub(crate) fn step_transactions<D: InboxDatabase>(store: &D) -> Box<dyn Any + Send> {
    let own: Arc<dyn StepTransactionSource<Transaction<'static, D::Db>>> = Arc::new(StepTransactions(store.clone()));
    Box::new(own)
}

struct StepTransactions<D>(D);

impl<D: fmt::Debug> fmt::Debug for StepTransactions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StepTransactions").field(&self.0).finish()
    }
}

#[async_trait]
impl<D: InboxDatabase> StepTransactionSource<Transaction<'static, D::Db>> for StepTransactions<D> {
    async fn begin(&self) -> Result<Transaction<'static, D::Db>, StoreError> {
        self.0.begin().await
    }

    async fn commit(
        &self,
        transaction: Transaction<'static, D::Db>,
        held: &ClaimHandle,
        step: &StepRecord,
    ) -> Result<Settled, StoreError> {
        // In a separate task: if the future were dropped, the transaction would not end.
        let ending = tokio::spawn(end(self.0.clone(), transaction, held.clone(), step.clone()));
        if let Some(answer) = ending.await.unwrap_or(CommitResult::Unknown).answer() {
            return answer;
        }
        loop {
            match self.0.journaled(held).await {
                Ok(Some(StoredSteps::Steps(steps))) => {
                    let noted = |known: &StepRecord| known.name == step.name && known.state >= StepState::Done;
                    return match steps.iter().any(noted) {
                        true => Ok(Settled::Done),
                        false => Err(rollback_error("the connection failed before the commit")),
                    };
                }
                Ok(Some(StoredSteps::Lost { now })) => return Ok(Settled::Lost { now }),
                Err(error) if !error.is_worth_a_retry() => return Err(error),
                // The server process of the lost connection is still working, or this connection was lost as well.
                Ok(None) | Err(_) => tokio::time::sleep(LOOKUP_INTERVAL).await,
            }
        }
    }

    async fn roll_back(&self, transaction: Transaction<'static, D::Db>) -> Result<(), StoreError> {
        let store = self.0.clone();
        let ending = tokio::spawn(async move { store.roll_back(transaction).await });
        ending.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Ambiguous)))
    }

    fn abandon(&self, transaction: Transaction<'static, D::Db>) {
        abandon(&self.0, transaction);
    }
}

/// Rolls back a transaction whose run or step was dropped.
pub(super) fn abandon<D: InboxDatabase>(store: &D, transaction: Transaction<'static, D::Db>) {
    // Without a runtime, the connection ends with its process.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let store = store.clone();
        runtime.spawn(async move { store.roll_back(transaction).await });
    }
}

async fn end<D: InboxDatabase>(
    store: D,
    mut transaction: Transaction<'static, D::Db>,
    held: ClaimHandle,
    step: StepRecord,
) -> CommitResult {
    let noting = async {
        store.stands(&mut transaction).await?;
        store.note_in(&mut transaction, &held, &step).await
    };
    let failed = match noting.await {
        Ok(Settled::Done) => return commit(store, transaction, FinalWrite::Written).await,
        Ok(lost) => CommitResult::Known(lost),
        Err(error) => CommitResult::failed(&error),
    };
    let _ = store.roll_back(transaction).await;
    failed
}
