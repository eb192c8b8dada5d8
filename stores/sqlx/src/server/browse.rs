//! Listing of records in the order of their ids.
use idempotent_core::{RecordEntry, RecordPage, StoreError};

use super::driver::Driver;
use super::runner::settled;
use super::statement::BoundStatement;
use super::store::ServerStore;
use crate::row;

/// The maximum number of entries in a page.
const MOST: usize = 10_000;

impl<D: Driver> ServerStore<D> {
    pub(crate) async fn browse(&self, after: Option<u128>, limit: usize) -> Result<RecordPage, StoreError> {
        let limit = limit.clamp(1, MOST);
        // Every id is greater than the empty byte string.
        let after: Vec<u8> = after.map_or_else(Vec::new, |id| id.to_be_bytes().to_vec());
        let browse = self.timed(BoundStatement::new(&self.texts.browse).bind(after).bind(limit as i64));
        let rows = settled(self.runner.all(browse).await?)?;
        let entry = |row| Ok(RecordEntry { key: row::key(row)?, record: row::record(row)? });
        let entries = rows.iter().map(entry).collect::<Result<Vec<_>, StoreError>>()?;
        let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.key.hash());
        Ok(RecordPage { entries, next })
    }
}
