//! Commits, and their results.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Settled, StoreError, StoreErrorKind};
use sqlx::Transaction;

use super::database::{FinalWrite, InboxDatabase, rolled_back, text_of};

/// The delay between two lookups of a commit that was not answered.
pub(super) const LOOKUP_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub(super) enum CommitResult {
    Known(Settled),
    /// The transaction was certainly rolled back.
    RolledBack(Arc<str>),
    /// The handler ended the transaction. The record is not consumed.
    Ended(Arc<str>),
    /// The database has not answered.
    Unknown,
}

pub(super) async fn commit<D: InboxDatabase>(
    store: D,
    transaction: Transaction<'static, D::Db>,
    last: FinalWrite,
) -> CommitResult {
    match store.commit(transaction, last).await {
        Ok(()) => CommitResult::Known(Settled::Done),
        Err(error) if error.kind() == StoreErrorKind::Ambiguous => CommitResult::Unknown,
        Err(error) => CommitResult::failed(&error),
    }
}

impl CommitResult {
    /// Returns the result of an end whose last write failed.
    pub(super) fn failed(error: &StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::TransactionEnded => Self::Ended(text_of(error).into()),
            _ => Self::RolledBack(text_of(&rolled_back(error)).into()),
        }
    }

    /// Returns the answer to the caller, or `None` if the commit has to be looked up.
    pub(super) fn answer(self) -> Option<Result<Settled, StoreError>> {
        match self {
            Self::Known(settled) => Some(Ok(settled)),
            Self::RolledBack(because) => Some(Err(rollback_error(&because))),
            Self::Ended(because) => Some(Err(StoreError::new(StoreErrorKind::TransactionEnded).because(&*because))),
            Self::Unknown => None,
        }
    }
}

pub(super) fn rollback_error(because: &str) -> StoreError {
    StoreError::new(StoreErrorKind::RolledBack).because(because)
}
