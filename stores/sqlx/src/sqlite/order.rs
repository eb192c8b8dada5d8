//! The order tables of streams. Each operation is one statement.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Key, OrderStore, StoreError, StoredOrderTable, Timestamp};
use sqlx::Row;

use super::connection::query;
use super::{SqliteStore, id};
use crate::order::{OrderSql, STEP};
use crate::row::micros;

/// The statements about them.
#[derive(Debug)]
pub(super) struct OrderStatements {
    read: Arc<str>,
    add: Arc<str>,
    compare_and_swap: Arc<str>,
    scan: Arc<str>,
    purge: Arc<str>,
}

impl From<OrderSql> for OrderStatements {
    fn from(OrderSql { read, add, compare_and_swap, scan, purge }: OrderSql) -> Self {
        let [read, add, compare_and_swap, scan, purge] = [read, add, compare_and_swap, scan, purge].map(Arc::from);
        Self { read, add, compare_and_swap, scan, purge }
    }
}

#[async_trait]
impl OrderStore for SqliteStore {
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        let mut turn = self.reader().await?;
        let read = self.timed(query(&self.0.order.read).bind(id(stream)));
        let row = turn.first(read).await?.ok_or_else(|| self.0.place.error(sqlx::Error::RowNotFound))?;
        let told = || Ok((row.try_get::<Option<Vec<u8>>, _>(0)?, row.try_get::<i64, _>(1)?));
        let (table, now) = told().map_err(|error| self.0.place.error(error))?;
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
        let mut turn = self.0.writer.turn().await?;
        Ok(turn.execute(self.timed(put)).await? > 0)
    }
}

impl SqliteStore {
    /// Removes the order tables of expired streams: `at_most`, plus at most one purge statement more.
    pub(super) async fn purge_order_tables(&self, at_most: usize) -> Result<(), StoreError> {
        let statements = &self.0.order;
        let (mut after, mut gone): (Vec<u8>, u64) = (Vec::new(), 0);
        while gone < at_most as u64 {
            let mut turn = self.reader().await?;
            let rows = turn.all(self.timed(query(&statements.scan).bind(after.clone()).bind(STEP))).await?;
            drop(turn);
            let read = |row: &sqlx::sqlite::SqliteRow| Ok((row.try_get::<Vec<u8>, _>(0)?, row.try_get::<i64, _>(1)?));
            let seen: Result<Vec<_>, sqlx::Error> = rows.iter().map(read).collect();
            let seen = seen.map_err(|error| self.0.place.error(error))?;
            let Some((last, _)) = seen.last() else { return Ok(()) };
            if seen.iter().any(|(_, over)| *over >= 0) {
                let mut turn = self.0.writer.turn().await?;
                let purge = query(&statements.purge).bind(after).bind(last.clone());
                gone += turn.execute(self.timed(purge)).await?;
            }
            if (seen.len() as i64) < STEP {
                return Ok(());
            }
            after = last.clone();
        }
        Ok(())
    }
}
