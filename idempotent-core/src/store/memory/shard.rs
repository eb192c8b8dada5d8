//! One shard of the memory store: a map, and when to look at its keys again.
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::protocol::purgeable;
use crate::{Micros, Record, State};

/// Enough that a shard grows in steps too small to be felt: a map of a million keys doubles 1,024 times a
/// thousand entries instead of once a million.
pub(super) const COUNT: usize = 1 << BITS;
const BITS: u32 = 10;

/// Looked at with every step, so that expiry keeps up with claims.
pub(super) const EXPIRED_A_STEP: usize = 2;

/// The expiry wheel's tick.
const TICK_MICROS: u64 = 1_000_000;

/// By the hash's highest bits; the map uses the lowest.
pub(super) fn index(hash: u128) -> usize {
    // 10 bits fit.
    usize::try_from(hash >> (u128::BITS - BITS)).unwrap_or_default()
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    records: HashMap<u128, Slot, BuildHasherDefault<Spread>>,
    /// Keys under the tick at which they are looked at again: the lease's end first, then the expiry.
    due: BTreeMap<u64, Vec<u128>>,
}

#[derive(Debug)]
struct Slot {
    record: Record,
    /// Its place in `due`. One left behind by a record since removed has another tick, and is dropped.
    tick: u64,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn get(&self, hash: u128) -> Option<&Record> {
        self.records.get(&hash).map(|slot| &slot.record)
    }

    pub(super) fn put(&mut self, hash: u128, record: Record) {
        if let Some(slot) = self.records.get_mut(&hash) {
            // Due earlier than it was queued for: its old place is left behind.
            if record.expires_at.0 / TICK_MICROS < slot.tick {
                slot.tick = queue(&mut self.due, hash, record.expires_at);
            }
            slot.record = record;
            return;
        }
        let look_again = match &record.state {
            State::Consuming { until, .. } => *until,
            _ => record.expires_at,
        };
        let tick = queue(&mut self.due, hash, look_again);
        self.records.insert(hash, Slot { record, tick });
    }

    /// Its place in the wheel stays until its tick.
    pub(super) fn remove(&mut self, hash: u128) {
        self.records.remove(&hash);
    }

    /// Removes at most `at_most` keys whose time has passed, after at most `looks`.
    pub(super) fn expire(&mut self, now: Micros, at_most: usize, looks: usize) {
        let before = self.records.len();
        for _ in 0..looks {
            if before - self.records.len() >= at_most {
                return;
            }
            let Some(mut first) = self.due.first_entry() else { return };
            let tick = *first.key();
            if tick >= now.0 / TICK_MICROS {
                return;
            }
            let hash = first.get_mut().pop();
            if first.get().is_empty() {
                first.remove();
            }
            let Some(hash) = hash else { continue };
            match self.records.get_mut(&hash) {
                Some(slot) if slot.tick != tick => {}
                Some(slot) if purgeable(&slot.record, now) => {
                    self.records.remove(&hash);
                }
                Some(slot) => slot.tick = queue(&mut self.due, hash, slot.record.expires_at.max(now)),
                None => {}
            }
        }
    }
}

/// What never expires is not looked at.
fn queue(due: &mut BTreeMap<u64, Vec<u128>>, hash: u128, at: Micros) -> u64 {
    let tick = at.0 / TICK_MICROS;
    if at < Micros::FOREVER {
        due.entry(tick).or_default().push(hash);
    }
    tick
}

/// The key is a cryptographic hash already.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        // The low half is all the map needs.
        self.0 = u64::try_from(hash & u128::from(u64::MAX)).unwrap_or_default();
    }
}
