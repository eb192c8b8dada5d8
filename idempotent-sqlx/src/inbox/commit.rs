//! Commits, and their results.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Settled, StoreError, StoreErrorKind};
use sqlx::Transaction;

use super::dialect::{Dialect, Last, rolled_back, text_of};

/// How long a commit without an answer is left alone between two looks.
pub(super) const LOOKUP_INTERVAL: Duration = Duration::from_millis(5);

/// What a commit came to.
#[derive(Clone)]
pub(super) enum CommitResult {
    Known(Settled),
    /// Surely nothing of it is there.
    RolledBack(Arc<str>),
    /// Nobody has said.
    Unknown,
}

pub(super) async fn commit<D: Dialect>(store: D, transaction: Transaction<'static, D::Db>, last: Last) -> CommitResult {
    match store.commit(transaction, last).await {
        Ok(()) => CommitResult::Known(Settled::Done),
        Err(error) if error.kind() == StoreErrorKind::Ambiguous => CommitResult::Unknown,
        Err(error) => CommitResult::RolledBack(text_of(&rolled_back(&error)).into()),
    }
}

pub(super) fn rollback_error(because: &str) -> StoreError {
    StoreError::new(StoreErrorKind::RolledBack).because(because)
}
