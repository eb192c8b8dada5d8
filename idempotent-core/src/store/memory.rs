//! A store in this process, for tests and services of one process.
mod entry;
#[cfg(test)]
mod interleavings;
mod shard;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use self::shard::Shard;
use super::{Abilities, Admin, Inspect, Inspected, Journal, Lined, Order, Purge, Renewal, Store, Watch, Watching};
use crate::protocol::{self, Write};
use crate::sync::{AtomicUsize, Mutex, MutexGuard};
use crate::waiters::Waiters;
use crate::{
    Claim, ClaimRequest, Clock, Completion, Fencing, Held, Journaled, Key, Micros, Record, Release, Settled, StateKind,
    StepRecord, StoreError, StoreErrorKind, SystemClock,
};

/// Records in a sharded map of this process; they end with it. Cheap to clone: clones share the records.
///
/// Bounded: at [`max_entries`](MemoryStoreBuilder::max_entries) the store refuses new claims and new ordered streams. The store
/// never evicts a record that still counts, since a marker that vanishes lets a duplicate run. Records past their time go a few
/// at a time with every step, without a scan; [`Purge`] removes the rest. Order tables past their time go when new ones need
/// their room.
///
/// Abilities: watch, purge, admin, inspect, journal, order.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shards: Box<[Mutex<Shard>]>,
    entries: Entries,
    /// The number of order tables.
    lines: AtomicUsize,
    /// The last sweep of order tables for want of room: a second, or 0.
    lines_swept: Mutex<u64>,
    max_entries: usize,
    clock: Arc<dyn Clock>,
    waiters: Arc<Waiters>,
}

/// How many. On cache lines of its own: each new key writes it, and should not slow what other threads only read.
#[derive(Debug)]
#[repr(align(128))]
struct Entries(AtomicUsize);

/// Sets up a [`MemoryStore`].
#[derive(Clone, Debug)]
pub struct MemoryStoreBuilder {
    max_entries: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// Sets the most records held at once, and the most order tables of streams beside them.
    ///
    /// # Default
    /// 1,000,000
    #[must_use]
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// The clock that judges leases. Its [`wall`](Clock::wall) must not go back.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The store, empty.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let Self { max_entries, clock } = self;
        let shards = (0..shard::COUNT).map(|_| Mutex::default()).collect();
        let (entries, waiters) = (Entries(AtomicUsize::new(0)), Arc::default());
        let (lines, lines_swept) = (AtomicUsize::new(0), Mutex::new(0));
        MemoryStore(Arc::new(Inner { shards, entries, lines, lines_swept, max_entries, clock, waiters }))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::builder().build()
    }
}

impl MemoryStore {
    /// An empty store with defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// To set limits or a clock.
    #[must_use]
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { max_entries: 1_000_000, clock: Arc::new(SystemClock::new()) }
    }

    /// Records held, those past their time and not yet removed included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.entries.0.load(Ordering::Relaxed)
    }

    /// Whether no record is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, hash: u128) -> MutexGuard<'_, Shard> {
        // A panic cannot leave a half-written record: decisions are pure, and a write is one call.
        self.0.shards[shard::index(hash)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides under the shard's lock, with the clock read under it: grants of a key follow its order. `None` if there
    /// is no room for a key that has no record.
    fn update<T>(&self, key: &Key, decide: impl FnOnce(Option<&Record>, Micros) -> (T, Write)) -> Option<T> {
        let mut shard = self.shard(key.hash());
        let now = self.0.clock.wall();
        self.expire(&mut shard, now, shard::EXPIRED_A_STEP, shard::EXPIRED_A_STEP);
        let place = shard.place(key.hash());
        let found = place.and_then(|place| shard.record(place));
        let (answer, write) = decide(found.as_ref(), now);
        match (write, place) {
            (Write::Keep, _) | (Write::Delete, None) => {}
            (Write::Put(record), Some(place)) => shard.replace(place, key.hash(), record),
            (Write::Put(record), None) => {
                self.take_room()?;
                shard.insert(key.hash(), record);
            }
            (Write::Delete, Some(_)) => {
                shard.remove(key.hash());
                self.leave_room(1);
            }
        }
        Some(answer)
    }

    /// Room for one more record. Taken before it is used: whoever finds none left has used none.
    fn take_room(&self) -> Option<()> {
        if self.0.entries.0.fetch_add(1, Ordering::Relaxed) < self.0.max_entries {
            return Some(());
        }
        self.leave_room(1);
        None
    }

    fn leave_room(&self, entries: usize) {
        if entries > 0 {
            self.0.entries.0.fetch_sub(entries, Ordering::Relaxed);
        }
    }

    /// How many it removed.
    fn expire(&self, shard: &mut Shard, now: Micros, at_most: usize, looks: usize) -> usize {
        let before = shard.len();
        shard.expire(now, at_most, looks);
        let gone = before - shard.len();
        self.leave_room(gone);
        gone
    }

    fn settle(&self, key: &Key, decide: impl FnOnce(Option<&Record>, Micros) -> (Settled, Write)) -> Settled {
        // What settles a key finds its record: it takes no room.
        let settled = self.update(key, decide).unwrap_or(Settled::Lost { now: StateKind::Absent });
        self.0.waiters.wake(key.hash());
        settled
    }

    /// Under the shard's lock: whoever takes over afterwards finds what was noted.
    fn held<T>(&self, held: &Held, then: impl FnOnce(&mut Shard, Micros) -> T) -> Result<T, StateKind> {
        let mut shard = self.shard(held.key.hash());
        let found = shard.place(held.key.hash()).and_then(|place| shard.record(place));
        let begun = protocol::begun(found.as_ref(), held, self.0.clock.wall())?;
        Ok(then(&mut shard, begun))
    }

    fn full(&self) -> StoreError {
        let max = self.0.max_entries;
        StoreError::new(StoreErrorKind::NotApplied).because(format!(
            "the memory store is full: {max} records, max_entries {max}; raise it, or shorten the retention"
        ))
    }

    fn full_of_lines(&self) -> StoreError {
        let max = self.0.max_entries;
        StoreError::new(StoreErrorKind::NotApplied).because(format!(
            "the memory store is full: {max} ordered streams, max_entries {max}; raise it, or order by fewer streams"
        ))
    }

    /// Removes order tables past their time from a shard.
    fn forget_lines(&self, shard: &mut Shard, now: Micros) {
        self.0.lines.fetch_sub(shard.forget_lines(now), Ordering::Relaxed);
    }

    /// Takes room for one more order table.
    fn take_line(&self) -> bool {
        let took = self.0.lines.fetch_add(1, Ordering::Relaxed) < self.0.max_entries;
        if !took {
            self.0.lines.fetch_sub(1, Ordering::Relaxed);
        }
        took
    }

    /// Removes order tables past their time, once a second at most: a sweep looks at all of them.
    fn sweep_lines(&self) {
        let second = self.0.clock.wall().0 / 1_000_000;
        let last = std::mem::replace(&mut *self.0.lines_swept.lock().unwrap_or_else(PoisonError::into_inner), second);
        if last == second {
            return;
        }
        for shard in &self.0.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.forget_lines(&mut shard, self.0.clock.wall());
        }
    }

    fn sweep(&self, mut at_most: usize) -> usize {
        let mut removed = 0;
        for shard in &self.0.shards {
            if at_most == 0 {
                break;
            }
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.forget_lines(&mut shard, self.0.clock.wall());
            let gone = self.expire(&mut shard, self.0.clock.wall(), at_most, usize::MAX);
            (removed, at_most) = (removed + gone, at_most.saturating_sub(gone));
        }
        removed
    }
}

/// Records past their time that a claim removes where there is no room.
const SWEPT_AT_ONCE: usize = 1_000;

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let claim = || self.update(&request.key, |found, now| protocol::claim(found, request, now));
        // Room is made by removing what is past its time, if need be.
        claim().or_else(|| if self.sweep(SWEPT_AT_ONCE) > 0 { claim() } else { None }).ok_or_else(|| self.full())
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        let renewed = self.update(&held.key, |found, now| protocol::renew(found, held, lease, now));
        Ok(renewed.unwrap_or(Settled::Lost { now: StateKind::Absent }))
    }

    async fn complete(&self, held: &Held, completion: &Completion) -> Result<Settled, StoreError> {
        Ok(self.settle(&held.key, |found, now| protocol::complete(found, held, completion, now)))
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        Ok(self.settle(&held.key, |found, now| protocol::release(found, held, release, now)))
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inspect(key).await?.map(|seen| seen.record))
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
            .with_watch(self)
            .with_purge(self)
            .with_admin(self)
            .with_inspect(self)
            .with_journal(self)
            .with_order(self)
            .with_renewal(self)
    }
}

#[async_trait]
impl Renewal for MemoryStore {
    /// The store itself, which needs no runtime.
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
    async fn forget(&self, key: &Key, expected: Fencing, force: bool, memory: Duration) -> Result<Settled, StoreError> {
        Ok(self.settle(key, |found, now| protocol::forget(found, expected, force, memory, now)))
    }
}

#[async_trait]
impl Inspect for MemoryStore {
    async fn inspect(&self, key: &Key) -> Result<Option<Inspected>, StoreError> {
        let seen = |record: &Record, now| Inspected { record: record.clone(), now };
        let look =
            |found: Option<&Record>, now| (protocol::live(found, now).map(|record| seen(record, now)), Write::Keep);
        Ok(self.update(key, look).flatten())
    }
}

#[async_trait]
impl Journal for MemoryStore {
    async fn steps(&self, held: &Held, _: Duration) -> Result<Journaled, StoreError> {
        let steps = self.held(held, |shard, begun| shard.steps(held.key.hash(), begun));
        Ok(steps.map_or_else(|now| Journaled::Lost { now }, Journaled::Steps))
    }

    async fn note(&self, held: &Held, step: &StepRecord, _: Duration) -> Result<Settled, StoreError> {
        let noted = self.held(held, |shard, begun| shard.note(held.key.hash(), begun, step));
        Ok(noted.map_or_else(|now| Settled::Lost { now }, |()| Settled::Done))
    }
}

#[async_trait]
impl Order for MemoryStore {
    async fn line(&self, stream: &Key) -> Result<Lined, StoreError> {
        let shard = self.shard(stream.hash());
        let now = self.0.clock.wall();
        Ok(Lined { line: shard.line(stream.hash(), now).cloned(), now })
    }

    async fn redraw(&self, stream: &Key, seen: Option<&[u8]>, next: &[u8], keep: Duration) -> Result<bool, StoreError> {
        let redraw = || {
            let mut shard = self.shard(stream.hash());
            let now = self.0.clock.wall();
            if shard.line(stream.hash(), now).map(|line| &**line) != seen {
                return Some(false);
            }
            if !shard.has_line(stream.hash()) {
                if shard.lines_have_doubled() {
                    self.forget_lines(&mut shard, now);
                }
                if !self.take_line() {
                    return None;
                }
            }
            shard.redraw(stream.hash(), next, now + keep);
            Some(true)
        };
        // Room is made by removing what is past its time, if need be.
        let drawn = redraw().or_else(|| {
            self.sweep_lines();
            redraw()
        });
        drawn.ok_or_else(|| self.full_of_lines())
    }
}
