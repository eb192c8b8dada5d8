//! The SQLite store, with one writing connection and a few for reads.
mod batch;
mod call;
mod claim_row;
mod connection;
#[cfg(test)]
mod ending_tests;
mod error;
#[cfg(test)]
mod group_tests;
mod health;
mod inbox;
pub(crate) mod migrate;
mod open;
mod options;
mod order;
mod purge;
mod queue;
mod queued_call;
mod record_access;
mod requests;
mod search;
mod statements;
mod steps;
#[cfg(test)]
mod tests;
mod tier;
mod transactions;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::live;
use idempotent_core::{
    Admin, Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Inspect, InspectedRecord, Key, Record, Release,
    Renewal, Settled, Store, StoreCapabilities, StoreError,
};

#[cfg(feature = "outbox")]
pub(crate) use self::error::{STALE, is_stale};
pub use self::options::{SqliteStoreBuilder, Synchronous};
use self::queue::Queue;
use self::record_access::RecordAccess;
use self::requests::Forget;
use self::statements::OrderStatements;
pub use self::tier::SqliteTier;
use self::transactions::Transactions;
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
/// If the file is removed or replaced while the store has it open, each call is refused, at the cost of one `stat` of about 1 µs per
/// call. A result that a full disk has no room for is left out, since the effect of its run is done. The store then refuses new
/// claims until it has stored the largest such result. The health check has the subjects `file`, `space` and `journal`.
///
/// An expired record stays in the file until [`Purge`](idempotent_core::Purge) removes the record. Call it periodically.
///
/// Capabilities: batch, search, purge, admin, inspect, steps, order, transact, health.
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
    access: RecordAccess,
    steps: StepsSql,
    order: OrderStatements,
    /// Claims that wait for a reader.
    looks: Queue,
    /// Calls that wait for the writer.
    writes: Queue,
    next_job: AtomicU64,
    transactions: Transactions,
    /// The builder for the store for renewals, or `None` for a database in memory.
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
            .with_search(self)
            .with_purge(self)
            .with_admin(self)
            .with_inspect(self)
            .with_steps(self)
            .with_order(self)
            .with_browse_order(self)
            .with_transact(self)
            .with_renewal(self)
            .with_health(self)
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
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        self.call(Forget { key: key.clone(), expected, force, retention }).await
    }
}

#[async_trait]
impl Inspect for SqliteStore {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        let access = &self.0.access;
        let mut turn = access.reader().await?;
        let found = access.look(&mut turn, key).await?;
        Ok(found
            .filter(|(record, now)| live(Some(record), *now).is_some())
            .map(|(record, now)| InspectedRecord { record, now }))
    }
}
