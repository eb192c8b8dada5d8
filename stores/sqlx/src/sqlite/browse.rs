//! Lists records, by id.
use async_trait::async_trait;
use idempotent_core::{Browse, RecordEntry, RecordPage, StoreError};

use super::SqliteStore;
use super::connection::query;
use crate::row;

/// The most entries of one page.
const MOST: usize = 10_000;

#[async_trait]
impl Browse for SqliteStore {
    async fn browse(&self, after: Option<u128>, limit: usize) -> Result<RecordPage, StoreError> {
        let limit = limit.clamp(1, MOST);
        // Nothing is before the empty blob.
        let after: Box<[u8]> = after.map_or_else(Box::default, |id| Box::new(id.to_be_bytes()));
        let mut turn = self.0.access.reader().await?;
        let browse = self.0.access.timed(query(&self.0.access.sql.browse).bind(after).bind(limit as i64));
        let rows = turn.all(browse).await?;
        drop(turn);
        let entry = |row| Ok(RecordEntry { key: row::key(row)?, record: row::record(row)? });
        let entries = rows.iter().map(entry).collect::<Result<Vec<_>, StoreError>>()?;
        let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.key.hash());
        Ok(RecordPage { entries, next })
    }
}
