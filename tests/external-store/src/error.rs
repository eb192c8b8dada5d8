//! Conclusions from errors of the database.
use std::error::Error;

use idempotent_core::{StoreError, StoreErrorKind};

/// The progress of a transaction at an error.
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

/// Returns the error of a thread that panicked, or whose runtime ended. The progress is unknown.
pub(crate) fn gave_up(error: tokio::task::JoinError) -> StoreError {
    StoreError::new(StoreErrorKind::Ambiguous).because("the transaction's thread gave up").with_source(error)
}
