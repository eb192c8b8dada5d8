//! One shard of the memory store: a map, and when to look at its keys again.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use hashbrown::HashTable;

use super::entry::{Entry, halves};
use crate::protocol::{self, purgeable};
use crate::{Micros, Record, State, StepRecord};

/// Enough that a shard grows in steps too small to be felt: a map of a million keys doubles 1,024 times a
/// thousand entries instead of once a million.
pub(super) const COUNT: usize = 1 << BITS;
/// Few in this crate's own tests: there each lock is shuttle's, made anew for every order that is tried.
const BITS: u32 = if cfg!(test) { 2 } else { 10 };

/// Looked at with every step, so that expiry keeps up with claims.
pub(super) const EXPIRED_A_STEP: usize = 2;

/// The tick keys are due by.
const TICK_MICROS: u64 = 1_000_000;

/// By the hash's highest bits; the map uses the lowest.
pub(super) fn index(hash: u128) -> usize {
    (hash >> (u128::BITS - BITS)) as usize
}

/// The entries lie in a list that grows by a quarter, and the map holds their places: empty buckets, half of a map,
/// cost five bytes each and not a hundred.
#[derive(Debug, Default)]
pub(super) struct Shard {
    places: HashTable<u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Places under the tick at which they are looked at again: the lease's end first, then the expiry. One that a
    /// record since removed has left behind has another tick than its entry, and is dropped.
    due: BinaryHeap<Reverse<(u32, u32)>>,
    /// The steps of the keys that have some, and when the record began that they belong to.
    steps: HashMap<u128, (Micros, Vec<StepRecord>)>,
    /// The order tables of streams, and until when they are kept.
    lines: HashMap<u128, (Arc<[u8]>, Micros)>,
    /// The number of order tables after the last sweep.
    lines_left: usize,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Where the key's entry lies, until the next removal.
    pub(super) fn place(&self, hash: u128) -> Option<u32> {
        let is = |place: &u32| self.entries[*place as usize].as_ref().is_some_and(|entry| entry.is(hash));
        self.places.find(halves(hash)[0], is).copied()
    }

    pub(super) fn record(&self, place: u32) -> Option<Record> {
        self.entries[place as usize].as_ref().map(Entry::record)
    }

    /// Writes a record of the key whose entry lies there.
    pub(super) fn replace(&mut self, place: u32, hash: u128, record: Record) {
        let queued = self.entries[place as usize].as_ref().map_or(NEVER, |entry| entry.tick);
        let due = tick(record.expires_at);
        // Due earlier than it was queued for: its old place in the queue is left behind.
        if due < queued {
            self.queue(due, place);
        }
        self.entries[place as usize] = Some(Entry::new(hash, record, due.min(queued)));
    }

    /// Writes a record of a key that has none.
    pub(super) fn insert(&mut self, hash: u128, record: Record) {
        let due = tick(match &record.state {
            State::Consuming { until, .. } => *until,
            _ => record.expires_at,
        });
        let entry = Some(Entry::new(hash, record, due));
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                if self.entries.len() == self.entries.capacity() {
                    self.entries.reserve_exact(a_quarter(self.entries.len()));
                }
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        let entries = &self.entries;
        let spread = |place: &u32| entries[*place as usize].as_ref().map_or(0, Entry::spread);
        self.places.insert_unique(halves(hash)[0], place, spread);
        self.queue(due, place);
    }

    /// What never expires is not looked at.
    fn queue(&mut self, due: u32, place: u32) {
        if due < NEVER {
            if self.due.len() == self.due.capacity() {
                self.tidy();
                self.due.reserve_exact(a_quarter(self.due.len()));
            }
            self.due.push(Reverse((due, place)));
        }
    }

    /// Forgets what removed records have left behind in the queue, once that is most of it: keys that come and go
    /// within a tick would fill it, whatever the bound on entries.
    fn tidy(&mut self) {
        if self.due.len() > 4 * self.entries.len() {
            let due = self.entries.iter().zip(0..).filter_map(|(entry, place)| Some((entry.as_ref()?.tick, place)));
            self.due = due.filter(|(tick, _)| *tick < NEVER).map(Reverse).collect();
        }
    }

    /// Its place in the queue stays until its tick.
    pub(super) fn remove(&mut self, hash: u128) {
        let entries = &self.entries;
        let is = |place: &u32| entries[*place as usize].as_ref().is_some_and(|entry| entry.is(hash));
        if let Ok(found) = self.places.find_entry(halves(hash)[0], is) {
            let (place, _) = found.remove();
            self.entries[place as usize] = None;
            self.free.push(place);
        }
        self.steps.remove(&hash);
    }

    /// The steps noted since the record began.
    pub(super) fn steps(&self, hash: u128, begun: Micros) -> Vec<StepRecord> {
        self.steps.get(&hash).filter(|(since, _)| *since == begun).map(|(_, steps)| steps.clone()).unwrap_or_default()
    }

    pub(super) fn note(&mut self, hash: u128, begun: Micros, step: &StepRecord) {
        let (since, steps) = self.steps.entry(hash).or_default();
        if *since != begun {
            (*since, *steps) = (begun, Vec::new());
        }
        protocol::note(steps, step);
    }

    /// The stream's line, unless its time is over.
    pub(super) fn line(&self, stream: u128, now: Micros) -> Option<&Arc<[u8]>> {
        self.lines.get(&stream).filter(|(_, until)| *until > now).map(|(line, _)| line)
    }

    pub(super) fn redraw(&mut self, stream: u128, next: &[u8], until: Micros) {
        self.lines.insert(stream, (next.into(), until));
    }

    /// Returns whether the stream has a table, also one past its time.
    pub(super) fn has_line(&self, stream: u128) -> bool {
        self.lines.contains_key(&stream)
    }

    /// Returns whether there are twice as many tables as after the last sweep, so that a sweep is worth its cost.
    pub(super) fn lines_have_doubled(&self) -> bool {
        self.lines.len() >= 2 * self.lines_left.max(8)
    }

    /// Forgets streams of which nothing was heard for as long as they are kept. Returns their number.
    pub(super) fn forget_lines(&mut self, now: Micros) -> usize {
        let before = self.lines.len();
        self.lines.retain(|_, (_, until)| *until > now);
        self.lines_left = self.lines.len();
        before - self.lines_left
    }

    /// Removes at most `at_most` keys whose time has passed, after at most `looks`.
    pub(super) fn expire(&mut self, now: Micros, at_most: usize, looks: usize) {
        let before = self.len();
        for _ in 0..looks {
            if before - self.len() >= at_most {
                return;
            }
            // Its last moment has to be over, too.
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

/// The tick of what never expires.
const NEVER: u32 = u32::MAX;

/// A time past the last tick, in the year 2106, is never looked at; until then it would not be due.
fn tick(at: Micros) -> u32 {
    u32::try_from(at.0 / TICK_MICROS).unwrap_or(NEVER)
}

fn a_quarter(of: usize) -> usize {
    (of / 4).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fencing, OwnerToken};

    const SECOND: u64 = TICK_MICROS;

    fn consuming(until: u64) -> Record {
        Record {
            fencing: Fencing(1),
            attempt: 1,
            fingerprint: None,
            state: State::Consuming { owner: OwnerToken(1), until: Micros(until), taken_over: None },
            expires_at: Micros(until + 60 * SECOND),
            first_seen: Micros(0),
            updated_at: Micros(0),
            display: None,
        }
    }

    #[test]
    fn keys_that_come_and_go_do_not_fill_the_queue() {
        let mut shard = Shard::default();
        for hash in 0..100_000 {
            shard.insert(hash, consuming(3_600 * SECOND));
            shard.remove(hash);
        }
        assert!(shard.len() == 0 && shard.due.len() < 64, "{} left behind", shard.due.len());
    }

    #[test]
    fn what_stays_is_looked_at_in_its_time_though_the_queue_was_tidied() {
        let mut shard = Shard::default();
        shard.insert(7, consuming(10 * SECOND));
        for hash in 100..10_000 {
            shard.insert(hash, consuming(3_600 * SECOND));
            shard.remove(hash);
        }
        shard.expire(Micros(12 * SECOND), 10, 10);
        assert!(shard.place(7).is_some(), "only its lease is over");
        shard.expire(Micros(69 * SECOND), 10, 10);
        assert!(shard.place(7).is_some(), "a second too early");
        shard.expire(Micros(72 * SECOND), 10, 10);
        assert_eq!((shard.place(7), shard.due.iter().filter(|due| due.0.0 < 100).count()), (None, 0));
    }
}
