//! The checks of a database file.
use async_trait::async_trait;
use idempotent_core::StoreError;
use idempotent_core::store::{Health, HealthFinding, HealthReport, Severity};
use sqlx::Row;

use super::SqliteStore;
use super::connection::query;

#[async_trait]
impl Health for SqliteStore {
    /// Checks the journal of the file, with the subject `journal`. A rollback journal blocks readers while a worker writes.
    async fn check(&self) -> Result<HealthReport, StoreError> {
        let access = &self.0.access;
        let mut turn = access.reader().await?;
        let row = turn.first(query(&"PRAGMA journal_mode".into())).await?;
        drop(turn);
        let mode = row.map(|row| row.try_get::<String, _>(0)).transpose().map_err(|error| access.place.error(error))?;
        let mode = mode.unwrap_or_default();
        let (severity, text) = if mode == "wal" || access.place.in_memory {
            (Severity::Ok, format!("journal mode `{mode}`"))
        } else {
            let remedy = "open the file once with a store that writes, on a local file system";
            (Severity::Warn, format!("journal mode `{mode}`, so readers and writers block each other: {remedy}"))
        };
        Ok(HealthReport::new(vec![HealthFinding::new(severity, "journal", access.place.file.as_str(), text)]))
    }
}
