//! Commits, and their results.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Settled, StoreError, StoreErrorKind};
use sqlx::Transaction;

use super::dialect::{Dialect, Last, rolled_back, words};

/// How long a commit without an answer is left alone between two looks.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// What a commit came to.
#[derive(Clone)]
pub(super) enum End {
    Told(Settled),
    /// Surely nothing of it is there.
    RolledBack(Arc<str>),
    /// Nobody has said.
    Unknown,
}

pub(super) async fn commit<D: Dialect>(store: D, transaction: Transaction<'static, D::Db>, last: Last) -> End {
    match store.commit(transaction, last).await {
        Ok(()) => End::Told(Settled::Done),
        Err(error) if error.kind() == StoreErrorKind::Ambiguous => End::Unknown,
        Err(error) => End::RolledBack(words(&rolled_back(&error)).into()),
    }
}

pub(super) fn nothing_of_it(because: &str) -> StoreError {
    StoreError::new(StoreErrorKind::RolledBack).because(because)
}
