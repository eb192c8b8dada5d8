//! The order tables of streams. Each operation is one statement.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{BrowseOrder, Key, OrderStore, OrderTablePage, StoreError, StoredOrderTable, Timestamp};
use sqlx::Row;

use super::SqliteStore;
use super::connection::query;
use super::record_access::id;
use crate::order::{OrderPage, STEP};
use crate::row::micros;

#[async_trait]
impl OrderStore for SqliteStore {
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        let mut turn = self.0.access.reader().await?;
        let read = self.0.access.timed(query(&self.0.order.read).bind(id(stream)));
        let row = turn.first(read).await?.ok_or_else(|| self.0.access.place.error(sqlx::Error::RowNotFound))?;
        let told = || Ok((row.try_get::<Option<Vec<u8>>, _>(0)?, row.try_get::<i64, _>(1)?));
        let (table, now) = told().map_err(|error| self.0.access.place.error(error))?;
        Ok(StoredOrderTable { table: table.map(Into::into), now: Timestamp(now.unsigned_abs()) })
    }

    async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        keep: Duration,
    ) -> Result<bool, StoreError> {
        let statements = &self.0.order;
        let put = |text| query(text).bind(id(stream)).bind(next.to_vec()).bind(micros(keep));
        let put = match seen {
            Some(seen) => put(&statements.compare_and_swap).bind(seen.to_vec()),
            None => put(&statements.add),
        };
        let mut turn = self.0.access.writer.turn().await?;
        Ok(turn.execute(self.0.access.timed(put)).await? > 0)
    }
}

#[async_trait]
impl BrowseOrder for SqliteStore {
    async fn browse_order(&self, after: Option<u128>, limit: usize) -> Result<OrderTablePage, StoreError> {
        let limit = limit.clamp(1, OrderPage::MOST);
        // Every id is greater than the empty blob.
        let after: Vec<u8> = after.map_or_else(Vec::new, |id| id.to_be_bytes().to_vec());
        let mut turn = self.0.access.reader().await?;
        let browse = query(&self.0.order.browse).bind(after).bind(limit as i64);
        let rows = turn.all(self.0.access.timed(browse)).await?;
        drop(turn);
        let mut page = OrderPage::default();
        let mut add = |row: &sqlx::sqlite::SqliteRow| {
            let id = row.try_get::<Vec<u8>, _>(0)?;
            page.add(&id, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            Ok(())
        };
        rows.iter().try_for_each(&mut add).map_err(|error| self.0.access.place.error(error))?;
        Ok(page.finish(limit))
    }
}

impl SqliteStore {
    /// Removes the order tables of expired streams: `at_most`, plus at most one purge statement more.
    pub(super) async fn purge_order_tables(&self, at_most: usize) -> Result<(), StoreError> {
        let statements = &self.0.order;
        let (mut after, mut gone): (Vec<u8>, u64) = (Vec::new(), 0);
        while gone < at_most as u64 {
            let mut turn = self.0.access.reader().await?;
            let rows = turn.all(self.0.access.timed(query(&statements.scan).bind(after.clone()).bind(STEP))).await?;
            drop(turn);
            let read = |row: &sqlx::sqlite::SqliteRow| Ok((row.try_get::<Vec<u8>, _>(0)?, row.try_get::<i64, _>(1)?));
            let seen: Result<Vec<_>, sqlx::Error> = rows.iter().map(read).collect();
            let seen = seen.map_err(|error| self.0.access.place.error(error))?;
            let Some((last, _)) = seen.last() else { return Ok(()) };
            if seen.iter().any(|(_, over)| *over >= 0) {
                let mut turn = self.0.access.writer.turn().await?;
                let purge = query(&statements.purge).bind(after).bind(last.clone());
                gone += turn.execute(self.0.access.timed(purge)).await?;
            }
            if (seen.len() as i64) < STEP {
                return Ok(());
            }
            after = last.clone();
        }
        Ok(())
    }
}
