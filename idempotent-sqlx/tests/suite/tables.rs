//! A table of a test's own on each database, for the outbox and the delay table, and what both say of their tables.
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::fmt::Debug;

use idempotent_core::{StoreError, StoreErrorKind};

/// Checks that no table is made unasked; `open` is told whether to make it.
pub(crate) async fn is_made_on_request_only<T: Debug>(open: impl AsyncFn(bool) -> Result<T, StoreError>) {
    let refused = open(false).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Schema, "{refused}");
    assert!(refused.to_string().contains("is missing"), "{refused}");
    for create in [true, false, true] {
        open(create).await.unwrap();
    }
}

/// Checks that what is no name of a table is refused.
pub(crate) async fn refuses_bad_names<T: Debug>(open: impl AsyncFn(&str) -> Result<T, StoreError>) {
    for name in ["", "Delay", "Outbox", "x; DROP TABLE mark", &"x".repeat(53)] {
        let refused = open(name).await.unwrap_err();
        assert!(refused.to_string().contains("table name"), "{name:?}: {refused}");
    }
}
