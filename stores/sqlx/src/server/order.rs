//! The order tables of streams. Each operation is one statement.
use std::time::Duration;

use idempotent_core::{Key, StoreError, StoredOrderTable, Timestamp};

use super::driver::Driver;
use super::error::Phase;
use super::refusal::Contention;
use super::requests::BETWEEN;
use super::runner::{StatementResult, settled};
use super::statement::BoundStatement;
use super::store::ServerStore;
use super::value::id;
use crate::answer;
use crate::order::STEP;
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
                StatementResult::Contended(Contention::Raced, _) => {}
                StatementResult::Contended(Contention::Locked, _) => tokio::time::sleep(BETWEEN).await,
            }
        }
        Err(answer::outrun())
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

/// Implements `OrderStore` for a store that wraps `Arc<ServerStore<…>>`.
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
    };
}
pub(crate) use server_order;
