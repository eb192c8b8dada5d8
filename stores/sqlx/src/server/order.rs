//! The order tables of streams. Each operation is one statement.
use std::time::Duration;

use idempotent_core::{Key, OrderTablePage, StoreError, StoredOrderTable, Timestamp};

use super::driver::Driver;
use super::error::Phase;
use super::requests::BETWEEN;
use super::runner::{StatementResult, settled};
use super::statement::BoundStatement;
use super::store::ServerStore;
use super::value::id;
use crate::answer;
use crate::order::{OrderPage, STEP};
use crate::row::{Cells, micros};

impl<D: Driver> ServerStore<D> {
    pub(crate) async fn load_order(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        let ask = self.timed(BoundStatement::new(&self.order.read).bind(id(stream)));
        let row = settled(self.runner.first(ask).await?)?;
        let failed = |error| self.runner.place.error::<D>(Phase::Executing, error);
        let row = row.ok_or_else(|| failed(sqlx::Error::RowNotFound))?;
        let table = row.bytes(0).map_err(failed)?.map(Into::into);
        Ok(StoredOrderTable { table, now: Timestamp(self.number(&row, 1)?.unsigned_abs()) })
    }

    pub(crate) async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        keep: Duration,
    ) -> Result<bool, StoreError> {
        for _ in 0..answer::TRIES {
            let put = |text| BoundStatement::new(text).bind(id(stream)).bind(next.to_vec()).bind(micros(keep));
            let put = match seen {
                Some(seen) => put(&self.order.compare_and_swap).bind(seen.to_vec()),
                None => put(&self.order.add),
            };
            match self.runner.execute(self.timed(put)).await? {
                StatementResult::Done(written) => return Ok(written > 0),
                StatementResult::Contended(..) => tokio::time::sleep(BETWEEN).await,
            }
        }
        Err(answer::outrun())
    }

    pub(crate) async fn browse_order(&self, after: Option<u128>, limit: usize) -> Result<OrderTablePage, StoreError> {
        let limit = limit.clamp(1, OrderPage::MOST);
        // Every id is greater than the empty byte string.
        let after: Vec<u8> = after.map_or_else(Vec::new, |id| id.to_be_bytes().to_vec());
        let browse = self.timed(BoundStatement::new(&self.order.browse).bind(after).bind(limit as i64));
        let rows = settled(self.runner.all(browse).await?)?;
        let mut page = OrderPage::default();
        for row in &rows {
            let bytes = |at| row.bytes(at).map_err(|error| self.runner.place.error::<D>(Phase::Executing, error));
            let (id, table) = (bytes(0)?.unwrap_or_default(), bytes(1)?.unwrap_or_default());
            page.add(id, table.to_vec(), self.number(row, 2)?, self.number(row, 3)?);
        }
        Ok(page.finish(limit))
    }

    /// Removes the order tables of expired streams: `at_most`, plus at most one purge statement more.
    pub(super) async fn purge_order_tables(&self, at_most: usize) -> Result<(), StoreError> {
        let (mut after, mut gone): (Vec<u8>, u64) = (Vec::new(), 0);
        while gone < at_most as u64 {
            let scan = BoundStatement::new(&self.order.scan).bind(after.clone()).bind(STEP);
            let rows = settled(self.runner.all(self.timed(scan)).await?)?;
            let mut old = false;
            for row in &rows {
                old |= self.number(row, 1)? >= 0;
            }
            let Some(last) = rows.last() else { return Ok(()) };
            let last = last.bytes(0).map_err(|error| self.runner.place.error::<D>(Phase::Executing, error))?;
            let last = last.unwrap_or_default().to_vec();
            if old {
                let purge = BoundStatement::new(&self.order.purge).bind(after).bind(last.clone());
                // An order table that another transaction is writing is no longer expired.
                if let StatementResult::Done(removed) = self.runner.execute(self.timed(purge)).await? {
                    gone += removed;
                }
            }
            if (rows.len() as i64) < STEP {
                return Ok(());
            }
            after = last;
        }
        Ok(())
    }
}

/// Implements `OrderStore` and `BrowseOrder` for a store that wraps `Arc<ServerStore<…>>`.
macro_rules! server_order {
    ($store:ident) => {
        #[::async_trait::async_trait]
        impl ::idempotent_core::OrderStore for $store {
            async fn load(
                &self,
                stream: &::idempotent_core::Key,
            ) -> Result<::idempotent_core::StoredOrderTable, ::idempotent_core::StoreError> {
                self.0.load_order(stream).await
            }

            async fn compare_and_swap(
                &self,
                stream: &::idempotent_core::Key,
                seen: Option<&[u8]>,
                next: &[u8],
                keep: ::std::time::Duration,
            ) -> Result<bool, ::idempotent_core::StoreError> {
                self.0.compare_and_swap(stream, seen, next, keep).await
            }
        }

        #[::async_trait::async_trait]
        impl ::idempotent_core::BrowseOrder for $store {
            async fn browse_order(
                &self,
                after: Option<u128>,
                limit: usize,
            ) -> Result<::idempotent_core::OrderTablePage, ::idempotent_core::StoreError> {
                self.0.browse_order(after, limit).await
            }
        }
    };
}
pub(crate) use server_order;
