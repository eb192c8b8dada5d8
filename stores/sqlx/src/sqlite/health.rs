//! The checks of a database file.
use async_trait::async_trait;
use idempotent_core::StoreError;
use idempotent_core::store::{Health, HealthFinding, HealthReport, Severity};
use sqlx::Row;

use super::SqliteStore;
use super::connection::query;

#[async_trait]
impl Health for SqliteStore {
    /// Checks the journal of the file, its path and its space, with the subjects `journal`, `file` and `space`. A rollback journal
    /// blocks readers while a worker writes.
    async fn check(&self) -> Result<HealthReport, StoreError> {
        let access = &self.0.access;
        let finding = |severity, subject, text| HealthFinding::new(severity, subject, access.place.file.as_str(), text);
        // No connection to such a file may be used.
        if let Some(Err(error)) = self.0.transactions.file.as_ref().map(|file| file.check()) {
            return Ok(HealthReport::new(vec![finding(Severity::Refuse, "file", error.to_string())]));
        }
        let mut turn = access.reader().await?;
        let row = turn.first(query(&"PRAGMA journal_mode".into())).await?;
        drop(turn);
        let mode = row.map(|row| row.try_get::<String, _>(0)).transpose().map_err(|error| access.place.error(error))?;
        let mode = mode.unwrap_or_default();
        let journal = if mode == "wal" || access.place.in_memory {
            finding(Severity::Ok, "journal", format!("journal mode `{mode}`"))
        } else {
            let remedy = "open the file once with a store that writes, on a local file system";
            let text = format!("journal mode `{mode}`, so readers and writers block each other: {remedy}");
            finding(Severity::Warn, "journal", text)
        };
        let space = match access.lost.text(&access.place.file) {
            Some(text) => finding(Severity::Refuse, "space", text),
            None => finding(Severity::Ok, "space", "no result was left out for lack of space".into()),
        };
        let file = finding(Severity::Ok, "file", "the path leads to the file that is open".into());
        Ok(HealthReport::new(vec![journal, file, space]))
    }
}
