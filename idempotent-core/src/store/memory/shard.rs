//! One shard of the memory store: a map of records and a queue of their expiry.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use hashbrown::HashTable;

use super::entry::{CompactRecord, halves};
use super::names::NameTable;
use crate::protocol::{self, purgeable};
use crate::{Key, Record, State, StepRecord, Timestamp};

/// The number of shards. Large enough that a shard grows in small steps: the shards of a million keys double one by
/// one, each with a thousand entries, instead of all at once.
pub(super) const COUNT: usize = 1 << BITS;
/// The binary logarithm of [`COUNT`]. Small in this crate's own tests, because they create new locks for each
/// interleaving.
const BITS: u32 = if cfg!(test) { 2 } else { 10 };

/// The number of queue entries that every operation checks, so that expiry keeps up with claims.
pub(super) const CHECKS_PER_OPERATION: usize = 2;

/// The resolution of the expiry queue: 1 s.
const TICK_MICROS: u64 = 1_000_000;

/// Returns the shard of a hash. The shard depends on the highest bits, the map within the shard on the lowest.
pub(super) fn index(hash: u128) -> usize {
    (hash >> (u128::BITS - BITS)) as usize
}

/// A shard of the store. The entries are in a list that grows by a quarter, and the map holds their indexes. An empty bucket, and
/// up to half of all buckets are empty, then costs 5 bytes instead of 100.
#[derive(Debug, Default)]
pub(super) struct Shard {
    places: HashTable<u32>,
    entries: Vec<Option<CompactRecord>>,
    free: Vec<u32>,
    /// The names of the keys, which listings return.
    names: NameTable,
    /// The queue of entries by the tick of their next check: first the lease's end, then the expiry. An item that a
    /// removed record left in the queue has a different tick than its entry and is dropped.
    due: BinaryHeap<Reverse<(u32, u32)>>,
    /// The steps of keys, each with the time at which the record of these steps began.
    steps: HashMap<u128, (Timestamp, Vec<StepRecord>)>,
    /// The order tables of streams, each with its expiry.
    order_tables: HashMap<u128, (Arc<[u8]>, Timestamp)>,
    /// The number of order tables after the last sweep.
    tables_after_sweep: usize,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the place of the key's entry in the list. The place is valid until the next removal.
    pub(super) fn place(&self, hash: u128) -> Option<u32> {
        let is = |place: &u32| self.entries[*place as usize].as_ref().is_some_and(|entry| entry.has_hash(hash));
        self.places.find(halves(hash)[0], is).copied()
    }

    pub(super) fn record(&self, place: u32) -> Option<Record> {
        self.entries[place as usize].as_ref().map(CompactRecord::record)
    }

    /// Returns the hashes after `after`, in their order, at most `most` of them.
    pub(super) fn hashes_after(&self, after: Option<u128>, most: usize) -> Vec<u128> {
        let all = self.entries.iter().flatten().map(CompactRecord::hash);
        let mut hashes: Vec<u128> = all.filter(|hash| after.is_none_or(|after| *hash > after)).collect();
        if hashes.len() > most {
            hashes.select_nth_unstable(most);
            hashes.truncate(most);
        }
        hashes.sort_unstable();
        hashes
    }

    /// Returns the key of the entry at `place`.
    pub(super) fn key(&self, place: u32) -> Option<Key> {
        let entry = self.entries[place as usize].as_ref()?;
        Some(Key::from_parts(self.names.name(entry.name)?, entry.hash()))
    }

    /// Replaces the record at `place`, which belongs to the key `hash`.
    pub(super) fn replace(&mut self, place: u32, hash: u128, record: Record) {
        let Some((queued, name)) = self.entries[place as usize].as_ref().map(|entry| (entry.tick, entry.name)) else {
            return;
        };
        let due = tick(record.expires_at);
        // The entry is due earlier than queued: its old item stays in the queue and is dropped later.
        if due < queued {
            self.queue(due, place);
        }
        self.entries[place as usize] = Some(CompactRecord::new((hash, name), record, due.min(queued)));
    }

    /// Inserts the record of a key that has none.
    pub(super) fn insert(&mut self, (hash, name): (u128, &str), record: Record) {
        let due = tick(match &record.state {
            State::Consuming { until, .. } => *until,
            _ => record.expires_at,
        });
        let entry = Some(CompactRecord::new((hash, self.names.add(name)), record, due));
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                if self.entries.len() == self.entries.capacity() {
                    self.entries.reserve_exact(quarter(self.entries.len()));
                }
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        let entries = &self.entries;
        let bucket_hash = |place: &u32| entries[*place as usize].as_ref().map_or(0, CompactRecord::bucket_hash);
        self.places.insert_unique(halves(hash)[0], place, bucket_hash);
        self.queue(due, place);
    }

    /// Queues an entry for a check, unless it never expires.
    fn queue(&mut self, due: u32, place: u32) {
        if due < NEVER {
            if self.due.len() == self.due.capacity() {
                self.compact_queue();
                self.due.reserve_exact(quarter(self.due.len()));
            }
            self.due.push(Reverse((due, place)));
        }
    }

    /// Drops the queue items of removed records once they are most of the queue. Otherwise, keys that are inserted and
    /// removed within a tick would fill the queue despite the limit on entries.
    fn compact_queue(&mut self) {
        if self.due.len() > 4 * self.entries.len() {
            let due = self.entries.iter().zip(0..).filter_map(|(entry, place)| Some((entry.as_ref()?.tick, place)));
            self.due = due.filter(|(tick, _)| *tick < NEVER).map(Reverse).collect();
        }
    }

    /// Removes the record of a key. Its queue item stays until its tick.
    pub(super) fn remove(&mut self, hash: u128) {
        let entries = &self.entries;
        let is = |place: &u32| entries[*place as usize].as_ref().is_some_and(|entry| entry.has_hash(hash));
        if let Ok(found) = self.places.find_entry(halves(hash)[0], is) {
            let (place, _) = found.remove();
            if let Some(entry) = self.entries[place as usize].take() {
                self.names.remove(entry.name);
            }
            self.free.push(place);
        }
        self.steps.remove(&hash);
    }

    /// Returns the steps recorded since the record began.
    pub(super) fn steps(&self, hash: u128, begun: Timestamp) -> Vec<StepRecord> {
        self.steps.get(&hash).filter(|(since, _)| *since == begun).map(|(_, steps)| steps.clone()).unwrap_or_default()
    }

    pub(super) fn note(&mut self, hash: u128, begun: Timestamp, step: &StepRecord) {
        let (since, steps) = self.steps.entry(hash).or_default();
        if *since != begun {
            (*since, *steps) = (begun, Vec::new());
        }
        protocol::note(steps, step);
    }

    /// Returns the stream's order table unless it has expired.
    pub(super) fn order_table(&self, stream: u128, now: Timestamp) -> Option<&Arc<[u8]>> {
        self.order_tables.get(&stream).filter(|(_, until)| *until > now).map(|(table, _)| table)
    }

    pub(super) fn put_order_table(&mut self, stream: u128, next: &[u8], until: Timestamp) {
        self.order_tables.insert(stream, (next.into(), until));
    }

    /// Returns whether the stream has an order table, including an expired one.
    pub(super) fn has_order_table(&self, stream: u128) -> bool {
        self.order_tables.contains_key(&stream)
    }

    /// Returns whether there are twice as many tables as after the last sweep, so that a sweep is worth its cost.
    pub(super) fn order_tables_have_doubled(&self) -> bool {
        self.order_tables.len() >= 2 * self.tables_after_sweep.max(8)
    }

    /// Removes expired order tables and returns their number.
    pub(super) fn remove_expired_order_tables(&mut self, now: Timestamp) -> usize {
        let before = self.order_tables.len();
        self.order_tables.retain(|_, (_, until)| *until > now);
        self.tables_after_sweep = self.order_tables.len();
        before - self.tables_after_sweep
    }

    /// Removes at most `at_most` expired keys and checks at most `checks` queue items.
    pub(super) fn expire(&mut self, now: Timestamp, at_most: usize, checks: usize) {
        let before = self.len();
        for _ in 0..checks {
            if before - self.len() >= at_most {
                return;
            }
            // The last tick of the entry must have ended as well.
            let Some(Reverse((due, place))) = self.due.peek().copied().filter(|due| due.0.0 < tick(now)) else {
                return;
            };
            self.due.pop();
            let Some(entry) = self.entries[place as usize].as_mut().filter(|entry| entry.tick == due) else { continue };
            let record = entry.record();
            if purgeable(&record, now) {
                let hash = entry.hash();
                self.remove(hash);
            } else {
                let again = tick(record.expires_at.max(now));
                entry.tick = again;
                self.queue(again, place);
            }
        }
    }
}

/// The tick of an entry that never expires.
const NEVER: u32 = u32::MAX;

/// Converts a time to its tick. A time after the last tick, in the year 2106, is never checked.
fn tick(at: Timestamp) -> u32 {
    u32::try_from(at.0 / TICK_MICROS).unwrap_or(NEVER)
}

fn quarter(of: usize) -> usize {
    (of / 4).max(4)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{FencingToken, OwnerToken};

    const SECOND: u64 = TICK_MICROS;

    fn consuming(until: u64) -> Record {
        Record {
            fencing: FencingToken(1),
            attempt: 1,
            fingerprint: None,
            state: State::Consuming { owner: OwnerToken(1), until: Timestamp(until), taken_over: None },
            expires_at: Timestamp(until + 60 * SECOND),
            first_seen: Timestamp(0),
            updated_at: Timestamp(0),
            display: None,
        }
    }

    #[test]
    fn inserted_and_removed_keys_do_not_fill_the_queue() {
        let mut shard = Shard::default();
        for hash in 0..100_000 {
            shard.insert((hash, "n"), consuming(3_600 * SECOND));
            shard.remove(hash);
        }
        assert!(shard.len() == 0 && shard.due.len() < 64, "{} left behind", shard.due.len());
    }

    #[test]
    fn a_remaining_key_is_checked_on_time_after_the_queue_was_compacted() {
        let mut shard = Shard::default();
        shard.insert((7, "n"), consuming(10 * SECOND));
        for hash in 100..10_000 {
            shard.insert((hash, "n"), consuming(3_600 * SECOND));
            shard.remove(hash);
        }
        shard.expire(Timestamp(12 * SECOND), 10, 10);
        assert!(shard.place(7).is_some(), "only its lease is over");
        shard.expire(Timestamp(69 * SECOND), 10, 10);
        assert!(shard.place(7).is_some(), "a second too early");
        shard.expire(Timestamp(72 * SECOND), 10, 10);
        assert_eq!((shard.place(7), shard.due.iter().filter(|due| due.0.0 < 100).count()), (None, 0));
    }

    fn settled(expires_at: u64) -> Record {
        let state = State::Consumed { owner: OwnerToken(1), value: None };
        Record { state, expires_at: Timestamp(expires_at), ..consuming(0) }
    }

    #[test]
    fn the_shards_are_ranges_of_hashes() {
        assert_eq!((index(0), index(u128::MAX)), (0, COUNT - 1));
        assert_eq!(index(1 << (u128::BITS - BITS)), 1);
    }

    #[test]
    fn a_replaced_record_is_queued_again_only_if_it_expires_earlier() {
        let mut shard = Shard::default();
        shard.insert((7, "n"), settled(100 * SECOND));
        let place = shard.place(7).unwrap();
        shard.replace(place, 7, settled(100 * SECOND));
        shard.replace(place, 7, settled(200 * SECOND));
        assert_eq!(shard.due.len(), 1);
        shard.replace(place, 7, settled(10 * SECOND));
        assert_eq!(shard.due.len(), 2);
        shard.expire(Timestamp(12 * SECOND), 10, 10);
        assert_eq!(shard.len(), 0);
    }

    #[test]
    fn a_completion_needs_no_second_place_in_the_queue() {
        let mut shard = Shard::default();
        shard.insert((7, "n"), consuming(10 * SECOND));
        shard.replace(shard.place(7).unwrap(), 7, settled(20 * SECOND));
        assert_eq!(shard.due.len(), 1);
    }

    #[test]
    fn a_record_that_never_expires_is_not_queued() {
        let mut shard = Shard::default();
        for hash in 0..64 {
            shard.insert((hash, "n"), settled(Timestamp::FOREVER.0));
        }
        assert_eq!((shard.len(), shard.due.len()), (64, 0));
        // Nor is one after the queue was compacted.
        for hash in 100..10_000 {
            shard.insert((hash, "n"), settled(3_600 * SECOND));
            shard.remove(hash);
        }
        assert!(shard.due.iter().all(|due| due.0.0 < NEVER));
    }

    #[test]
    fn an_order_table_is_absent_from_its_expiry_on() {
        let mut shard = Shard::default();
        shard.put_order_table(7, b"table", Timestamp(10));
        assert!(shard.order_table(7, Timestamp(9)).is_some() && shard.order_table(7, Timestamp(10)).is_none());
        assert_eq!(shard.remove_expired_order_tables(Timestamp(9)), 0);
        assert_eq!(shard.remove_expired_order_tables(Timestamp(10)), 1);
    }

    #[test]
    fn order_tables_are_worth_a_sweep_when_they_have_doubled() {
        let mut shard = Shard::default();
        let add_until = |shard: &mut Shard, count: u128| {
            for stream in 0..count {
                shard.put_order_table(stream, b"table", Timestamp(10));
            }
            shard.order_tables_have_doubled()
        };
        assert!(!add_until(&mut shard, 15) && add_until(&mut shard, 16));
        assert_eq!(shard.remove_expired_order_tables(Timestamp(1)), 0);
        assert!(!add_until(&mut shard, 31) && add_until(&mut shard, 32));
    }
}
