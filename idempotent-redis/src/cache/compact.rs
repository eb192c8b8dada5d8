//! A table of consumed keys without a result, with 28 bytes for each place.
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use idempotent_core::FencingToken;

use crate::lock;

/// The number of slots of a bucket. A key has its place in one bucket, which a look-up searches from end to end.
const WAYS: usize = 16;
/// The number of locks. A power of two, so that the shard of a bucket needs no division.
const SHARDS: usize = 16;
/// The unit of the end of an entry, rounded down.
const TICK: Duration = Duration::from_millis(10);
/// The highest bit of a stored fencing number, which is set if the call had no fingerprint. A fencing number has 53 bits.
const NO_FINGERPRINT: u64 = 1 << 63;

/// A key without a result: its hash without the first part, and what a duplicate has to know.
///
/// The parts have four bytes each, so that a slot has no padding.
#[derive(Clone, Copy)]
struct TableSlot {
    hash: [u32; 3],
    fencing: [u32; 2],
    /// The end of the entry, in ticks since the table was created. 0 in a free slot.
    end: u32,
}

const FREE: TableSlot = TableSlot { hash: [0; 3], fencing: [0; 2], end: 0 };

/// The keys with equal places. The first parts of their hashes fill one cache line, so that a look-up reads few lines.
#[derive(Clone)]
#[repr(align(64))]
struct TableBucket {
    first: [u32; WAYS],
    slots: [TableSlot; WAYS],
}

const EMPTY: TableBucket = TableBucket { first: [0; WAYS], slots: [FREE; WAYS] };

impl TableBucket {
    /// Returns the slot of a key, among the first `ways` ones.
    fn find(&self, hash: u128, ways: usize) -> Option<usize> {
        let (first, rest) = words(hash);
        let is_key = |at: &usize| self.slots[*at].end > 0 && self.slots[*at].hash == rest;
        (0..ways).filter(|at| self.first[*at] == first).find(is_key)
    }
}

/// A bounded table of consumed keys. A full bucket replaces the entry that ends first.
pub struct CompactTable {
    start: Instant,
    ways: usize,
    buckets: usize,
    /// The buckets, dealt to the shards in turn. The buckets of a shard are allocated with its first key.
    shards: [Mutex<Vec<TableBucket>>; SHARDS],
}

/// The entry of a consumed key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CompactEntry {
    /// The fencing number of the run.
    pub fencing: FencingToken,
    /// True if it is known that the call had no fingerprint, and false if its fingerprint is unknown.
    pub has_no_fingerprint: bool,
}

impl CompactTable {
    /// Creates a table for at most `keys` keys. `start` must not be later than the time of an entry.
    #[must_use]
    pub fn new(keys: usize, start: Instant) -> Self {
        let ways = keys.clamp(1, WAYS);
        Self { start, ways, buckets: (keys / ways).max(1), shards: Default::default() }
    }

    /// Returns the entry of a key, unless its end has passed. Reads the clock `now` only for a known key.
    #[must_use]
    pub fn get(&self, hash: u128, now: impl FnOnce() -> Instant) -> Option<CompactEntry> {
        let (shard, at) = self.place(hash);
        let buckets = self.buckets(shard);
        let bucket = buckets.get(at)?;
        let slot = bucket.slots[bucket.find(hash, self.ways)?];
        drop(buckets);
        let fencing = (u64::from(slot.fencing[0]) << 32) | u64::from(slot.fencing[1]);
        let entry = CompactEntry {
            fencing: FencingToken(fencing & !NO_FINGERPRINT),
            has_no_fingerprint: fencing & NO_FINGERPRINT > 0,
        };
        (self.ticks(now()) < u128::from(slot.end)).then_some(entry)
    }

    /// Adds or replaces a key. Returns false if the table cannot represent the entry, which then has no place in it.
    pub fn insert(&self, hash: u128, entry: CompactEntry, end: Instant) -> bool {
        let fencing = entry.fencing.0;
        let (Ok(end @ 1..), 0) = (u32::try_from(self.ticks(end)), fencing & NO_FINGERPRINT) else {
            self.remove(hash);
            return false;
        };
        let fencing = if entry.has_no_fingerprint { fencing | NO_FINGERPRINT } else { fencing };
        let (first, rest) = words(hash);
        let (shard, at) = self.place(hash);
        let mut buckets = self.buckets(shard);
        if buckets.is_empty() {
            // The number of buckets in this shard.
            *buckets = vec![EMPTY; (self.buckets - shard).div_ceil(SHARDS)];
        }
        let Some(bucket) = buckets.get_mut(at) else { return false };
        // A free slot has the earliest end of all.
        let earliest = || (0..self.ways).min_by_key(|at| bucket.slots[*at].end);
        let chosen = bucket.find(hash, self.ways).or_else(earliest).unwrap_or_default();
        bucket.first[chosen] = first;
        bucket.slots[chosen] = TableSlot { hash: rest, fencing: [(fencing >> 32) as u32, fencing as u32], end };
        true
    }

    /// Removes a key.
    pub fn remove(&self, hash: u128) {
        let (shard, at) = self.place(hash);
        if let Some(bucket) = self.buckets(shard).get_mut(at)
            && let Some(found) = bucket.find(hash, self.ways)
        {
            bucket.slots[found] = FREE;
        }
    }

    /// Removes all keys.
    pub fn clear(&self) {
        for shard in 0..SHARDS {
            *self.buckets(shard) = Vec::new();
        }
    }

    /// Counts the keys, including those whose end has passed.
    #[must_use]
    pub fn len(&self) -> usize {
        let used = |bucket: &TableBucket| bucket.slots.iter().filter(|slot| slot.end > 0).count();
        (0..SHARDS).map(|shard| self.buckets(shard).iter().map(used).sum::<usize>()).sum()
    }

    /// Returns whether the table has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the shard of a key, and its bucket there.
    fn place(&self, hash: u128) -> (usize, usize) {
        // Both halves count, because the hash may be chosen by a user.
        let folded = (hash >> 64) as u64 ^ (hash as u64).rotate_left(32);
        let bucket = ((u128::from(folded) * self.buckets as u128) >> 64) as usize;
        (bucket % SHARDS, bucket / SHARDS)
    }

    fn ticks(&self, at: Instant) -> u128 {
        at.saturating_duration_since(self.start).as_millis() / TICK.as_millis()
    }

    fn buckets(&self, shard: usize) -> MutexGuard<'_, Vec<TableBucket>> {
        lock(&self.shards[shard])
    }
}

impl fmt::Debug for CompactTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactTable").field("keys", &self.len()).finish_non_exhaustive()
    }
}

/// Splits a hash into its first part and the rest.
fn words(hash: u128) -> (u32, [u32; 3]) {
    // The highest bits choose the bucket, so they are equal within it.
    (hash as u32, [96, 64, 32].map(|shift| (hash >> shift) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a hash as random as that of a key.
    fn hash(number: u128) -> u128 {
        (number + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
            .rotate_left(64)
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn entry(fencing: u64) -> CompactEntry {
        CompactEntry { fencing: FencingToken(fencing), has_no_fingerprint: fencing.is_multiple_of(2) }
    }

    #[test]
    fn a_key_takes_28_bytes() {
        assert_eq!(size_of::<TableBucket>(), 28 * WAYS);
    }

    #[test]
    fn a_key_is_found_until_its_end_and_until_its_removal() {
        let start = Instant::now();
        let table = CompactTable::new(1_000, start);
        for fencing in [0, 1, (1 << 53) - 1, (1 << 53) - 2] {
            assert!(table.insert(hash(1), entry(fencing), start + SECOND));
            assert_eq!(table.get(hash(1), || start), Some(entry(fencing)));
        }
        assert_eq!(table.len(), 1, "replaced");
        let last = start + SECOND - Duration::from_nanos(1);
        assert_eq!((table.get(hash(1), || last).is_some(), table.get(hash(1), || start + SECOND)), (true, None));
        assert_eq!(table.get(hash(2), || start), None);
        assert!(table.insert(0, entry(7), start + SECOND));
        assert_eq!(table.get(0, || start), Some(entry(7)), "the hash of a free slot");
        table.remove(hash(1));
        assert_eq!((table.get(hash(1), || start), table.len()), (None, 1));
        table.clear();
        assert!(table.is_empty() && table.get(0, || start).is_none());
    }

    #[test]
    fn an_entry_never_lasts_longer_than_its_end_in_ticks() {
        let start = Instant::now();
        let table = CompactTable::new(10, start);
        assert!(table.insert(1, entry(1), start + TICK * 3 + TICK / 2));
        assert!(table.get(1, || start + TICK * 3 - Duration::from_nanos(1)).is_some());
        assert_eq!(table.get(1, || start + TICK * 3), None);
    }

    #[test]
    fn an_entry_that_cannot_be_represented_replaces_a_known_one_by_nothing() {
        let start = Instant::now();
        let table = CompactTable::new(10, start);
        let years = Duration::from_secs(3 * 365 * 24 * 3_600);
        for (fencing, end) in [(1 << 63, SECOND), (1, years), (1, Duration::ZERO)] {
            assert!(table.insert(1, entry(2), start + SECOND));
            assert!(!table.insert(1, entry(fencing), start + end));
            assert_eq!(table.get(1, || start), None);
        }
    }

    #[test]
    fn a_full_bucket_replaces_the_entry_that_ends_first() {
        let start = Instant::now();
        let table = CompactTable::new(4, start);
        for (number, end) in [(1, 5), (2, 3), (3, 4), (4, 6), (5, 7)] {
            assert!(table.insert(number, entry(9), start + SECOND * end));
        }
        let found = [1, 2, 3, 4, 5].map(|number| table.get(number, || start).is_some());
        assert_eq!(found, [true, false, true, true, true]);
    }

    #[test]
    fn a_table_has_at_most_its_keys_and_most_of_them() {
        let start = Instant::now();
        for keys in [1, 10, 16, 17, 100, 1_000, 12_345] {
            let table = CompactTable::new(keys, start);
            for number in 0..keys {
                assert!(table.insert(hash(number as u128), entry(3), start + SECOND));
            }
            let share = table.len() as f64 / keys as f64;
            assert!((0.8..=1.0).contains(&share), "{share} of {keys}");
            let found = (0..keys).filter(|number| table.get(hash(*number as u128), || start).is_some()).count();
            assert_eq!(found, table.len());
        }
        assert!(CompactTable::new(0, start).insert(1, entry(1), start + SECOND), "at least one slot");
    }
}
