//! A store outside of the project: records in [`redb`], an embedded transactional database, in one file.
//!
//! Each operation reads, decides by [`protocol`] and writes in one write transaction. redb has one write transaction
//! at a time, so an operation is atomic, and durable when it returns. A store needs nothing more, and `tests/laws.rs`
//! proves the store in one line.
mod capability;
mod error;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, Record, Release, Settled, Store, StoreCapabilities,
    StoreError, Timestamp,
};
use redb::{Database, ReadableTable, Table, TableDefinition};

use self::error::{Stage, gave_up, refused};

/// A key's hash, and under it the readable part of the key and the record's stored form.
const RECORDS: TableDefinition<u128, (&str, &[u8])> = TableDefinition::new("idempotent_record");

/// Records in a redb file. Clones share it; the file can be opened once at a time.
///
/// Capabilities: batch, search, purge, admin.
#[derive(Clone, Debug)]
pub struct RedbStore {
    database: Arc<Database>,
    clock: Arc<dyn Clock>,
}

impl RedbStore {
    /// Opens the file, and creates a missing one. `clock` determines the ends of leases, and must not go back.
    ///
    /// # Errors
    /// `NotApplied` if the file cannot be opened: another process has opened the file, or it is not a database.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let database = Database::create(path).map_err(refused)?;
        let write = database.begin_write().map_err(refused)?;
        write.open_table(RECORDS).map_err(refused)?;
        write.commit().map_err(|error| Stage::Commit.error(error))?;
        Ok(Self { database: Arc::new(database), clock })
    }

    /// Returns the database, for other data of the application.
    #[must_use]
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// One write transaction, on a thread that may wait for the disk. Kept if `job` says that it changed something.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Records<'_>) -> Result<(T, bool), StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Self { database, clock } = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let write = database.begin_write().map_err(refused)?;
            let table = write.open_table(RECORDS).map_err(refused)?;
            // Read when all before it are done: numbers rise in the order of the grants.
            let mut records = Records { table, now: clock.wall() };
            let (answer, changed) = job(&mut records)?;
            drop(records);
            if changed {
                write.commit().map_err(|error| Stage::Commit.error(error))?;
            } else {
                write.abort().map_err(refused)?;
            }
            Ok(answer)
        });
        task.await.unwrap_or_else(|error| Err(gave_up(error)))
    }

    /// One step on one key.
    async fn step<T: Send + 'static>(
        &self,
        key: &Key,
        decide: impl FnOnce(Option<&Record>, Timestamp) -> (T, Write) + Send + 'static,
    ) -> Result<T, StoreError> {
        let key = key.clone();
        self.write(move |records| records.step(&key, decide)).await
    }
}

/// The table inside a transaction.
struct Records<'t> {
    table: Table<'t, u128, (&'static str, &'static [u8])>,
    now: Timestamp,
}

impl Records<'_> {
    /// Returns the record. An unreadable record is an error of the matching kind, and stays unchanged.
    fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let row = self.table.get(key.hash()).map_err(refused)?;
        row.map(|row| Record::from_bytes(row.value().1)).transpose()
    }

    /// Reads, decides, writes; says whether it wrote.
    fn step<T>(
        &mut self,
        key: &Key,
        decide: impl FnOnce(Option<&Record>, Timestamp) -> (T, Write),
    ) -> Result<(T, bool), StoreError> {
        let (answer, write) = decide(self.get(key)?.as_ref(), self.now);
        let changed = match write {
            Write::Keep => false,
            Write::Put(record) => {
                self.table.insert(key.hash(), (key.name(), &*record.to_bytes())).map_err(refused)?;
                true
            }
            Write::Delete => self.table.remove(key.hash()).map_err(refused)?.is_some(),
        };
        Ok((answer, changed))
    }
}

#[async_trait]
impl Store for RedbStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let request = request.clone();
        self.step(&request.key.clone(), move |found, now| protocol::claim(found, &request, now)).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        let held = held.clone();
        self.step(&held.key.clone(), move |found, now| protocol::renew(found, &held, lease, now)).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        let (held, completion) = (held.clone(), completion.clone());
        self.step(&held.key.clone(), move |found, now| protocol::complete(found, &held, &completion, now)).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let (held, release) = (held.clone(), release.clone());
        self.step(&held.key.clone(), move |found, now| protocol::release(found, &held, &release, now)).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.step(key, |found, now| (protocol::live(found, now).cloned(), Write::Keep)).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_batch(self).with_search(self).with_purge(self).with_admin(self)
    }
}
