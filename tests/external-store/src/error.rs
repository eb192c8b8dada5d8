//! What may be concluded from an error of the database.
use std::error::Error;

use idempotent_core::{StoreError, StoreErrorKind};

/// How far a transaction got.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Before its commit: nothing is done, whatever went wrong.
    Before,
    /// In its commit: it may be done.
    Commit,
}

impl Stage {
    pub(crate) fn error(self, error: impl Error + Send + Sync + 'static) -> StoreError {
        let (kind, what) = match self {
            Self::Before => (StoreErrorKind::NotApplied, "the database refused"),
            Self::Commit => (StoreErrorKind::Ambiguous, "the database failed in a commit"),
        };
        StoreError::new(kind).because(format!("{what}: {error}")).with_source(error)
    }
}

pub(crate) fn refused(error: impl Error + Send + Sync + 'static) -> StoreError {
    Stage::Before.error(error)
}

/// The thread panicked, or the runtime ended: nobody knows how far it got.
pub(crate) fn gave_up(error: tokio::task::JoinError) -> StoreError {
    StoreError::new(StoreErrorKind::Ambiguous).because("the transaction's thread gave up").with_source(error)
}
