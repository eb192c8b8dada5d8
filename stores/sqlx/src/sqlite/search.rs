//! The search for records, with the statements of [`SearchSql`](crate::search::SearchSql).
use async_trait::async_trait;
use idempotent_core::{KeyFilter, PageLimits, RecordPage, Search, StoreError};
use sqlx::Row;

use super::SqliteStore;
use super::connection::{Query, query};
use crate::search::{ExaminedRows, FilterValues, SearchedPage};

#[async_trait]
impl Search for SqliteStore {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        let access = &self.0.access;
        let mut page = SearchedPage::new(filter, after, limits);
        while let Some(rows) = page.rows() {
            // Other callers get the connection between two steps.
            let mut turn = access.reader().await?;
            let examine = query(&access.sql.examine).bind(page.after()).bind(rows);
            let row = turn.first(access.timed(with_values(examine, page.values()))).await?;
            let failed = |error| access.place.error(error);
            let row = row.ok_or_else(|| failed(sqlx::Error::RowNotFound))?;
            let read = || {
                let (last, rows) = (row.try_get(0)?, row.try_get(1)?);
                Ok(ExaminedRows { last, rows, selected: row.try_get(2)?, now: row.try_get(3)? })
            };
            let seen: ExaminedRows = read().map_err(failed)?;
            let Some(last) = page.examined(rows, &seen) else { continue };
            let read = with_values(query(&access.sql.read).bind(page.after()).bind(page.room()), page.values());
            let found = turn.all(access.timed(read.bind(last))).await?;
            drop(turn);
            page.read(rows, &seen, &found)?;
        }
        Ok(page.page())
    }
}

fn with_values(ask: Query, values: FilterValues) -> Query {
    let FilterValues { states, min_attempt, shortest, longest, prefix, orphaned } = values;
    ask.bind(states).bind(min_attempt).bind(shortest).bind(longest).bind(prefix).bind(orphaned)
}
