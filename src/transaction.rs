//! Effect and record in one transaction: the inbox, keys inserted once, and guarded versions.
pub use idempotent_core::{
    BorrowedTransaction, StepTransactionSource, TransactionHandle, TransactionSource, TransactionalRun,
};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use idempotent_sqlx::{Inbox, InboxTransaction, StepTransaction, UniqueKeyConnection, UniqueKeys};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use idempotent_sqlx::{VersionCheck, VersionConnection, VersionGuard};
