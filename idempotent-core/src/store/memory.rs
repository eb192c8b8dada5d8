//! An in-memory store, for tests and for services that run as one process.
mod batch;
mod entry;
#[cfg(test)]
mod interleavings;
mod names;
mod search;
mod shard;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use self::shard::Shard;
use super::{
    Admin, Inspect, InspectedRecord, OrderStore, Purge, Renewal, StepStore, Store, StoreCapabilities, StoredOrderTable,
    Watch, Watching,
};
use crate::protocol::{self, Write};
use crate::sync::{AtomicUsize, Mutex, MutexGuard};
use crate::waiters::Waiters;
use crate::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, FencingToken, Key, Record, Release, Settled, StateKind,
    StepRecord, StoreError, StoreErrorKind, StoredSteps, SystemClock, Timestamp,
};

/// A store that keeps records in a sharded map of this process. Clones share the records and are cheap.
///
/// The store is bounded. At [`max_entries`](MemoryStoreBuilder::max_entries) it refuses new claims and new ordered
/// streams. It never evicts a record that still counts, because a duplicate could then run. Every operation removes a
/// few expired records without a scan, and [`Purge`] removes the rest. Expired order tables are removed when new ones
/// need their place.
///
/// Capabilities: batch, watch, search, purge, admin, inspect, journal, order, renewal.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<MemoryStoreInner>);

#[derive(Debug)]
struct MemoryStoreInner {
    shards: Box<[Mutex<Shard>]>,
    entries: EntryCount,
    /// The number of order tables.
    order_tables: AtomicUsize,
    /// The second of the last sweep of order tables at the limit, or 0.
    tables_swept: Mutex<u64>,
    max_entries: usize,
    clock: Arc<dyn Clock>,
    waiters: Arc<Waiters>,
}

/// The number of records. Aligned to cache lines of its own, since each new key writes it while other threads read the
/// neighbouring fields.
#[derive(Debug)]
#[repr(align(128))]
struct EntryCount(AtomicUsize);

/// A builder for a [`MemoryStore`].
#[derive(Clone, Debug)]
pub struct MemoryStoreBuilder {
    max_entries: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// Sets the maximum number of records. The same limit applies to the number of order tables.
    ///
    /// # Default
    /// 1,000,000
    #[must_use]
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// Sets the clock that decides when leases expire. Its [`wall`](Clock::wall) time must not go back.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds an empty store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let Self { max_entries, clock } = self;
        let shards = (0..shard::COUNT).map(|_| Mutex::default()).collect();
        let (entries, waiters) = (EntryCount(AtomicUsize::new(0)), Arc::default());
        let (order_tables, tables_swept) = (AtomicUsize::new(0), Mutex::new(0));
        MemoryStore(Arc::new(MemoryStoreInner {
            shards,
            entries,
            order_tables,
            tables_swept,
            max_entries,
            clock,
            waiters,
        }))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::builder().build()
    }
}

impl MemoryStore {
    /// Creates an empty store with the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a builder for a store with a custom limit or clock.
    #[must_use]
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { max_entries: 1_000_000, clock: Arc::new(SystemClock::new()) }
    }

    /// Returns the number of records, including expired records that are not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.entries.0.load(Ordering::Relaxed)
    }

    /// Returns whether the store holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, hash: u128) -> MutexGuard<'_, Shard> {
        // A panic cannot leave a half-written record: decisions are pure, and a write is one call.
        self.0.shards[shard::index(hash)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides under the lock of the shard, and reads the clock under the same lock, so that grants of a key follow the
    /// order of the clock. Returns `None` if the store has no room for a new record.
    fn update<T>(&self, key: &Key, decide: impl FnOnce(Option<&Record>, Timestamp) -> (T, Write)) -> Option<T> {
        let mut shard = self.shard(key.hash());
        let now = self.0.clock.wall();
        self.expire(&mut shard, now, shard::CHECKS_PER_OPERATION, shard::CHECKS_PER_OPERATION);
        let place = shard.place(key.hash());
        let found = place.and_then(|place| shard.record(place));
        let (answer, write) = decide(found.as_ref(), now);
        match (write, place) {
            (Write::Keep, _) | (Write::Delete, None) => {}
            (Write::Put(record), Some(place)) => shard.replace(place, key.hash(), record),
            (Write::Put(record), None) => {
                self.reserve_entry()?;
                shard.insert((key.hash(), key.name()), record);
            }
            (Write::Delete, Some(_)) => {
                shard.remove(key.hash());
                self.free_entries(1);
            }
        }
        Some(answer)
    }

    /// Reserves room for one more record. The reservation comes first, so that a caller that finds no room has used
    /// none.
    fn reserve_entry(&self) -> Option<()> {
        if self.0.entries.0.fetch_add(1, Ordering::Relaxed) < self.0.max_entries {
            return Some(());
        }
        self.free_entries(1);
        None
    }

    fn free_entries(&self, entries: usize) {
        if entries > 0 {
            self.0.entries.0.fetch_sub(entries, Ordering::Relaxed);
        }
    }

    /// Removes expired records of a shard and returns their number.
    fn expire(&self, shard: &mut Shard, now: Timestamp, at_most: usize, checks: usize) -> usize {
        let before = shard.len();
        shard.expire(now, at_most, checks);
        let gone = before - shard.len();
        self.free_entries(gone);
        gone
    }

    fn settle(&self, key: &Key, decide: impl FnOnce(Option<&Record>, Timestamp) -> (Settled, Write)) -> Settled {
        // An operation that settles a key never inserts a record, so it needs no room.
        let settled = self.update(key, decide).unwrap_or(Settled::Lost { now: StateKind::Absent });
        self.0.waiters.wake(key.hash());
        settled
    }

    /// Calls `then` under the lock of the shard if `held` holds the key. An owner that takes over later sees the
    /// change.
    fn while_held<T>(&self, held: &ClaimHandle, then: impl FnOnce(&mut Shard, Timestamp) -> T) -> Result<T, StateKind> {
        let mut shard = self.shard(held.key.hash());
        let found = shard.place(held.key.hash()).and_then(|place| shard.record(place));
        let begun = protocol::begun(found.as_ref(), held, self.0.clock.wall())?;
        Ok(then(&mut shard, begun))
    }

    fn full_of_records(&self) -> StoreError {
        let max = self.0.max_entries;
        StoreError::new(StoreErrorKind::NotApplied).because(format!(
            "the memory store is full with {max} records; raise max_entries, or shorten the retention"
        ))
    }

    fn full_of_order_tables(&self) -> StoreError {
        let max = self.0.max_entries;
        StoreError::new(StoreErrorKind::NotApplied).because(format!(
            "the memory store is full with {max} ordered streams; raise max_entries, or use fewer streams"
        ))
    }

    /// Removes expired order tables from a shard.
    fn remove_expired_tables(&self, shard: &mut Shard, now: Timestamp) {
        self.0.order_tables.fetch_sub(shard.remove_expired_order_tables(now), Ordering::Relaxed);
    }

    /// Reserves room for one more order table, and returns whether there was room.
    fn reserve_order_table(&self) -> bool {
        let took = self.0.order_tables.fetch_add(1, Ordering::Relaxed) < self.0.max_entries;
        if !took {
            self.0.order_tables.fetch_sub(1, Ordering::Relaxed);
        }
        took
    }

    /// Removes expired order tables at most once per second, because a sweep visits all tables.
    fn sweep_order_tables(&self) {
        let second = self.0.clock.wall().0 / 1_000_000;
        let last = std::mem::replace(&mut *self.0.tables_swept.lock().unwrap_or_else(PoisonError::into_inner), second);
        for shard in self.0.shards.iter().filter(|_| last != second) {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.remove_expired_tables(&mut shard, self.0.clock.wall());
        }
    }

    fn sweep(&self, mut at_most: usize) -> usize {
        let mut removed = 0;
        for shard in &self.0.shards {
            if at_most == 0 {
                break;
            }
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.remove_expired_tables(&mut shard, self.0.clock.wall());
            let gone = self.expire(&mut shard, self.0.clock.wall(), at_most, usize::MAX);
            (removed, at_most) = (removed + gone, at_most.saturating_sub(gone));
        }
        removed
    }
}

/// The number of expired records that a claim removes if the store is full.
const SWEEP_LIMIT: usize = 1_000;

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.claim_now(request)
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        Ok(self.renew_now(held, lease))
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        Ok(self.complete_now(held, completion))
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        Ok(self.settle(&held.key, |found, now| protocol::release(found, held, release, now)))
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inspect(key).await?.map(|seen| seen.record))
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
            .with_batch(self)
            .with_watch(self)
            .with_search(self)
            .with_purge(self)
            .with_admin(self)
            .with_inspect(self)
            .with_steps(self)
            .with_order(self)
            .with_renewal(self)
    }
}

#[async_trait]
impl Renewal for MemoryStore {
    /// Returns the store itself, which needs no runtime.
    async fn renewal_store(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(self.clone()))
    }
}

impl Watch for MemoryStore {
    fn watch(&self, key: &Key) -> Watching {
        self.0.waiters.watch(key.hash())
    }
}

#[async_trait]
impl Purge for MemoryStore {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        Ok(self.sweep(at_most))
    }
}

#[async_trait]
impl Admin for MemoryStore {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        Ok(self.settle(key, |found, now| protocol::forget(found, expected, force, retention, now)))
    }
}

#[async_trait]
impl Inspect for MemoryStore {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        let seen = |record: &Record, now| InspectedRecord { record: record.clone(), now };
        let look =
            |found: Option<&Record>, now| (protocol::live(found, now).map(|record| seen(record, now)), Write::Keep);
        Ok(self.update(key, look).flatten())
    }
}

#[async_trait]
impl StepStore for MemoryStore {
    async fn steps(&self, held: &ClaimHandle, _: Duration) -> Result<StoredSteps, StoreError> {
        let steps = self.while_held(held, |shard, begun| shard.steps(held.key.hash(), begun));
        Ok(steps.map_or_else(|now| StoredSteps::Lost { now }, StoredSteps::Steps))
    }

    async fn note(&self, held: &ClaimHandle, step: &StepRecord, _: Duration) -> Result<Settled, StoreError> {
        let noted = self.while_held(held, |shard, begun| shard.note(held.key.hash(), begun, step));
        Ok(noted.map_or_else(|now| Settled::Lost { now }, |()| Settled::Done))
    }
}

#[async_trait]
impl OrderStore for MemoryStore {
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        let shard = self.shard(stream.hash());
        let now = self.0.clock.wall();
        Ok(StoredOrderTable { table: shard.order_table(stream.hash(), now).cloned(), now })
    }

    async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        keep: Duration,
    ) -> Result<bool, StoreError> {
        let swap = || {
            let mut shard = self.shard(stream.hash());
            let now = self.0.clock.wall();
            if shard.order_table(stream.hash(), now).map(|table| &**table) != seen {
                return Some(false);
            }
            if !shard.has_order_table(stream.hash()) {
                if shard.order_tables_have_doubled() {
                    self.remove_expired_tables(&mut shard, now);
                }
                if !self.reserve_order_table() {
                    return None;
                }
            }
            shard.put_order_table(stream.hash(), next, now + keep);
            Some(true)
        };
        // A full store first removes expired order tables.
        let retried = || {
            self.sweep_order_tables();
            swap()
        };
        swap().or_else(retried).ok_or_else(|| self.full_of_order_tables())
    }
}
