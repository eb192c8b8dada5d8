//! Errors of the store as errors of a producer and of a consumer.
use idempotent_core::{StoreError, StoreErrorKind};
use idempotent_mq::{DelayError, DelayErrorKind, SourceError, SourceErrorKind};

/// Converts an error for a producer.
pub(super) fn delay_error(doing: &str, error: StoreError) -> DelayError {
    let kind = match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::RolledBack => DelayErrorKind::NotApplied,
        StoreErrorKind::Ambiguous => DelayErrorKind::Ambiguous,
        _ => DelayErrorKind::Refused,
    };
    DelayError::new(kind, format!("{doing}: {error}")).with_cause(error)
}

/// Converts an error for a consumer.
pub(super) fn source_error(doing: &str, error: StoreError) -> SourceError {
    let kind = match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous | StoreErrorKind::RolledBack => {
            SourceErrorKind::Transient
        }
        _ => SourceErrorKind::Fatal,
    };
    SourceError::new(kind, format!("{doing}: {error}")).with_cause(error)
}
