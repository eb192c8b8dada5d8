//! A table of a test's own on each database, for the outbox and the delay table, and the checks that all stores share.
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::fmt::Debug;

use idempotent_core::{StoreError, StoreErrorKind};
use idempotent_sqlx::SchemaStep;

/// Checks that the store creates tables only on request. `open` takes this setting.
pub(crate) async fn is_made_on_request_only<T: Debug>(open: impl AsyncFn(bool) -> Result<T, StoreError>) {
    let refused = open(false).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Schema, "{refused}");
    assert!(refused.to_string().contains("is missing"), "{refused}");
    for create in [true, false, true] {
        open(create).await.unwrap();
    }
}

/// Checks that tables of printed migrations are complete, and that `create` adds nothing to them.
pub(crate) async fn open_on_printed_migrations<T: Debug>(
    steps: &[SchemaStep],
    execute: impl AsyncFn(String),
    open: impl AsyncFn(bool) -> Result<T, StoreError>,
) {
    for step in steps {
        let refused = open(false).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Schema, "{refused}");
        let numbers = format!("has schema version {}, needed is {}", step.version() - 1, steps.len());
        let words = [&*numbers, &format!("{} `{}`", step.version(), step.name())];
        let is_named = step.version() == 1 || words.iter().all(|word| refused.to_string().contains(word));
        assert!(is_named && refused.to_string().contains("schema_steps()"), "{refused}");
        execute(step.to_string()).await;
    }
    for create in [false, true] {
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
