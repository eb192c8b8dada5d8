//! Errors of inspection and repair.
use idempotent_core::{EntropyError, KeyError, StoreError};

/// An error of inspecting or repairing a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// The text names no key.
    #[error(
        "`{text}` is no storage key: expected `NAMESPACE:SCENE:SCOPE:{{HASH}}`, such as `idempotent:mq:orders:{{Pv_mJFCxQoKrWCJDVdincw}}`"
    )]
    Address {
        /// The escaped text.
        text: String,
    },
    /// The parts make no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store lacks a capability.
    #[error("this store cannot {action}")]
    Unsupported {
        /// The action.
        action: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The id of an audit entry could not be generated, so nothing was changed.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// The audit entry could not be written, so nothing was changed.
    #[error("the audit entry could not be written, so nothing was changed: {0}")]
    Audit(#[source] std::io::Error),
    /// The author or the reason of a change is not acceptable.
    #[error("invalid {field}: {rule}")]
    Author {
        /// The field.
        field: &'static str,
        /// The rule.
        rule: &'static str,
    },
}
