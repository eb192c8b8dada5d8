//! The SQLite store: one writer connection, a few that read.
mod batch;
mod browse;
mod claim_row;
mod connection;
#[cfg(feature = "delay")]
pub(crate) mod delay;
#[cfg(test)]
mod ending_tests;
mod error;
#[cfg(test)]
mod group_tests;
mod inbox;
mod migrate;
mod open;
mod options;
mod order;
#[cfg(feature = "outbox")]
pub(crate) mod outbox;
mod purge;
mod queue;
mod queued_call;
mod requests;
mod statements;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::live;
use idempotent_core::{
    Admin, Claim, ClaimHandle, ClaimRequest, Clock, Completion, FencingToken, Inspect, InspectedRecord, Key, Record,
    Release, Renewal, Settled, Store, StoreCapabilities, StoreError, StoreErrorKind, Timestamp,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, ValueRef};

use self::connection::{ConnectionGuard, FairConnection, Query, query};
use self::error::ErrorContext;
#[cfg(feature = "outbox")]
pub(crate) use self::error::{STALE, is_stale};
use self::inbox::Transactions;
pub use self::options::{SqliteStoreBuilder, Synchronous};
use self::order::OrderStatements;
use self::queue::Queue;
use self::requests::Forget;
use self::statements::SqliteStatements;
use crate::row::{self, COLUMNS, Cells, signed};
use crate::steps::StepsSql;

/// A store of records in a table of an SQLite file, durable and shared by the processes of one machine. Clones share the
/// connections.
///
/// The file is used in WAL mode, which does not work on network file systems. Each process writes through one
/// connection and reads through a few others; callers queue first come, first served. A call that comes alone is a
/// statement of its own. Calls that wait share one transaction, up to 256: either all of them are in the file or
/// none, and each is answered after the commit. A duplicate that would have to wait is answered by a reader. Times
/// are SQLite's own reading of the machine's clock, to the millisecond.
///
/// A task on the runtime of a caller serves waiting calls. Do not share a store with a runtime that is neither run nor dropped.
///
/// An expired record stays in the file until [`Purge`](idempotent_core::Purge) removes the record. Call it periodically.
///
/// Capabilities: batch, browse, purge, admin, inspect, steps, order, transact.
///
/// ```
/// use idempotent_sqlx::SqliteStore;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("idempotent.db");
/// # let path = path.to_str().ok_or("not UTF-8")?;
/// let store = SqliteStore::open(path).await?;
///
/// // With separate migrations, a missing table is an error.
/// let missing = SqliteStore::builder(path).table("other").create(false).open().await;
/// assert!(missing.is_err_and(|error| error.to_string().contains("open it once with `create(true)`")));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sql: SqliteStatements,
    steps: StepsSql,
    order: OrderStatements,
    place: Arc<ErrorContext>,
    writer: FairConnection,
    /// Empty for a database in memory, which only its single connection can see.
    readers: Box<[FairConnection]>,
    next_reader: AtomicUsize,
    /// Claims, then all calls, that wait for a connection.
    looks: Queue,
    writes: Queue,
    next_job: AtomicU64,
    /// The number of consecutive new keys among claims that arrived alone; below zero, the number of consumed keys.
    lately: AtomicI32,
    clock: Option<Arc<dyn Clock>>,
    transactions: Transactions,
    /// Opens the store for renewals; none for a database in memory.
    again: Option<SqliteStoreBuilder>,
}

impl SqliteStore {
    /// Opens the file. Creates a missing file and table. `place` is a path, `sqlite:PATH`,
    /// `sqlite://PATH` or `sqlite::memory:`.
    ///
    /// # Errors
    /// The same as [`SqliteStoreBuilder::open`].
    ///
    /// # Cancellation
    /// The same as [`SqliteStoreBuilder::open`].
    pub async fn open(place: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(place).open().await
    }

    /// Returns a builder to set the table, the durability or a clock.
    #[must_use]
    pub fn builder(place: impl Into<String>) -> SqliteStoreBuilder {
        SqliteStoreBuilder::new(place.into())
    }

    /// Returns a connection for reads, if possible a free one.
    async fn reader(&self) -> Result<ConnectionGuard<'_>, StoreError> {
        let readers = &self.0.readers;
        let start = self.0.next_reader.fetch_add(1, Ordering::Relaxed);
        let nth = |index: usize| readers.get(start.wrapping_add(index) % readers.len().max(1));
        let free = (0..readers.len()).filter_map(nth).find(|lane| !lane.is_taken());
        free.or_else(|| nth(0)).unwrap_or(&self.0.writer).turn().await
    }

    /// Binds the time where a clock was handed in. To be called with the turn in hand: a time read before
    /// waiting could be overtaken.
    fn timed(&self, query: Query) -> Query {
        match &self.0.clock {
            Some(clock) => query.bind(signed(clock.wall())),
            None => query,
        }
    }

    async fn look(&self, turn: &mut ConnectionGuard<'_>, key: &Key) -> Result<Option<(Record, Timestamp)>, StoreError> {
        let look = self.timed(query(&self.0.sql.look).bind(id(key)));
        turn.first(look).await?.map(|row| Ok((row::record(&row)?, now(&row)?))).transpose()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.call(request.clone()).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.call((held.clone(), lease)).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.call((held.clone(), completion.clone())).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.call((held.clone(), release.clone())).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inspect(key).await?.map(|seen| seen.record))
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
            .with_batch(self)
            .with_browse(self)
            .with_purge(self)
            .with_admin(self)
            .with_inspect(self)
            .with_steps(self)
            .with_order(self)
            .with_transact(self)
            .with_renewal(self)
    }
}

#[async_trait]
impl Renewal for SqliteStore {
    /// Returns a store with a writer of its own. A database in memory has only one writer.
    async fn renewal_store(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(match &self.0.again {
            Some(again) => again.clone().open().await?,
            None => self.clone(),
        }))
    }
}

#[async_trait]
impl Admin for SqliteStore {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        memory: Duration,
    ) -> Result<Settled, StoreError> {
        self.call(Forget { key: key.clone(), expected, force, memory }).await
    }
}

#[async_trait]
impl Inspect for SqliteStore {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        let mut turn = self.reader().await?;
        let found = self.look(&mut turn, key).await?;
        Ok(found
            .filter(|(record, now)| live(Some(record), *now).is_some())
            .map(|(record, now)| InspectedRecord { record, now }))
    }
}

fn id(key: &Key) -> Box<[u8]> {
    Box::new(key.hash().to_be_bytes())
}

fn owner(token: u128) -> Box<[u8]> {
    Box::new(token.to_be_bytes())
}

impl Cells for SqliteRow {
    fn int(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(at)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        if self.try_get_raw(at)?.is_null() { Ok(None) } else { self.try_get(at).map(Some) }
    }
}

/// Returns the time of the statement that read the row. An SQLite version without `unixepoch(…, 'subsec')` returns
/// null.
fn now(row: &SqliteRow) -> Result<Timestamp, StoreError> {
    let now: Option<i64> = row.try_get(COLUMNS.len()).unwrap_or_default();
    now.and_then(|now| u64::try_from(now).ok()).map(Timestamp).ok_or_else(|| {
        StoreError::new(StoreErrorKind::Schema)
            .because("SQLite does not tell the time in milliseconds: version 3.42 or newer is needed")
    })
}
