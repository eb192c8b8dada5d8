//! The packed form of decision 0078: the header of a slot lists segments, and a segment has buckets of members.
use std::collections::HashMap;
use std::sync::Arc;

use super::bug::Bug;
use super::clock::HOUR;
use super::scenario::Retention;

/// The number of members in a bucket at which a completion asks for a new segment.
const FULL: usize = 500;
/// The planned number of members in a bucket. Its double would not fit, and at its half a member takes 10 bytes.
const FILL: f64 = 475.0;
/// A part of a bucket from which on the number of buckets is rounded up.
const ROUNDED_UP: f64 = 0.4;
/// The number of segments from which on a full bucket closes no segment.
const MOST_ENTRIES: usize = 12;

/// A segment in a header. Times are those of the master's clock, in µs.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    id: u64,
    opened: u64,
    closed: Option<u64>,
    planned_end: u64,
    buckets: u64,
}

/// The header of a slot. The last entry is the open segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) version: u64,
    entries: Vec<Entry>,
}

impl Header {
    /// Returns whether the open segment has reached its planned end.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.entries.last().is_none_or(|open| open.planned_end <= now)
    }

    pub(super) fn segments(&self) -> usize {
        self.entries.len()
    }
}

/// The members of one bucket of one segment, sorted, as in a set of integers.
#[derive(Clone, Debug)]
struct Bucket {
    members: Vec<u64>,
    expires_at: u64,
}

/// The part of a slot in packed form.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedSlot {
    header: Option<(Arc<Header>, u64)>,
    buckets: HashMap<(u64, u64), Bucket>,
}

/// The parts of a key's hash that select its member.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberPlace {
    bucket_bits: u64,
    member: u64,
}

impl MemberPlace {
    pub(super) fn of(hash: u128, bug: Option<Bug>) -> Self {
        let member = if bug == Some(Bug::ShortMember) { hash as u64 & 0xffff } else { hash as u64 };
        Self { bucket_bits: (hash >> 98) as u64 & 0xffff, member }
    }

    fn bucket(self, buckets: u64) -> u64 {
        (self.bucket_bits * buckets) >> 16
    }
}

/// All that a failover needs to undo a roll: the header before, and the dropped buckets with their names.
#[derive(Debug)]
pub(super) struct RollUndo {
    header: Option<(Arc<Header>, u64)>,
    dropped: Vec<((u64, u64), Bucket)>,
}

/// A roll, as its client proposes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollPlan {
    pub(super) retention: Retention,
    /// The position of the slot in the cluster, from 0 to 1. The ends of the slots' segments are spread by it.
    pub(super) offset: f64,
    pub(super) bug: Option<Bug>,
}

impl PackedSlot {
    /// Returns the header, unless it has expired.
    pub(super) fn header(&self, now: u64) -> Option<&Arc<Header>> {
        self.header.as_ref().filter(|(_, expires_at)| *expires_at > now).map(|(header, _)| header)
    }

    /// Returns whether a segment of the header has the member. `moved` is the part of the buckets that the master no
    /// longer has.
    pub(super) fn is_marked(&self, place: MemberPlace, now: u64, moved: f64, bug: Option<Bug>) -> bool {
        let Some(header) = self.header(now) else { return false };
        let most = if bug == Some(Bug::NewestSegmentOnly) { 1 } else { usize::MAX };
        let is_ignored = |entry: &Entry| bug == Some(Bug::FutureIgnored) && entry.opened > now;
        header.entries.iter().rev().take(most).filter(|entry| !is_ignored(entry)).any(|entry| {
            let bucket = place.bucket(entry.buckets);
            let is_here = place.bucket_bits as f64 / 65_536.0 >= moved;
            self.buckets
                .get(&(entry.id, bucket))
                .is_some_and(|set| is_here && set.expires_at > now && set.members.binary_search(&place.member).is_ok())
        })
    }

    /// Adds a member to the open segment. Returns true if its bucket is full.
    pub(super) fn add(&mut self, place: MemberPlace, retention: Retention, now: u64) -> bool {
        let Some(header) = self.header(now) else { return false };
        let Some(open) = header.entries.last() else { return false };
        let (at, is_limited) = ((open.id, place.bucket(open.buckets)), header.entries.len() >= MOST_ENTRIES);
        let expires_at = open.planned_end + retention.retain + 2 * retention.guard();
        let set = self.buckets.entry(at).or_insert_with(|| Bucket { members: Vec::new(), expires_at });
        if let Err(position) = set.members.binary_search(&place.member) {
            set.members.insert(position, place.member);
        }
        set.members.len() >= FULL && !is_limited
    }

    /// Removes a member that a failover has lost.
    pub(super) fn remove(&mut self, place: MemberPlace) {
        for set in self.buckets.values_mut() {
            if let Ok(position) = set.members.binary_search(&place.member) {
                set.members.remove(position);
            }
        }
    }

    /// Undoes a roll that a failover has lost.
    pub(super) fn undo(&mut self, roll: RollUndo) {
        self.header = roll.header;
        self.buckets.extend(roll.dropped);
    }

    /// Replaces the header if it is the expected one: closes the open segment, drops the segments whose retention has
    /// passed, and opens a new one. Returns what a failover needs to undo the roll, or `None` if nothing changed.
    pub(super) fn roll(
        &mut self,
        expected: Option<&Arc<Header>>,
        plan: RollPlan,
        clocks: RollClocks,
    ) -> Option<RollUndo> {
        if self.header(clocks.server) != expected {
            return None;
        }
        let RollPlan { retention, offset, bug } = plan;
        let now = clocks.segments;
        let mut entries = expected.map(|header| header.entries.clone()).unwrap_or_default();
        if let Some(open) = entries.last_mut() {
            open.closed = Some(now.min(open.planned_end));
        }
        let buckets = self.proposal(entries.last(), retention, now, bug);
        let dropped = self.drop_ended(&mut entries, plan, now);
        let last = expected.and_then(|header| header.entries.last()).map_or(0, |entry| entry.id);
        let planned_end = planned_end(now, retention.length(), offset);
        entries.push(Entry { id: last + 1, opened: now, closed: None, planned_end, buckets });
        let version = expected.map_or(1, |header| header.version + 1);
        // A segment lasts less than two lengths.
        let expires_at = clocks.server + retention.retain + 2 * retention.length() + 2 * HOUR;
        let header = self.header.replace((Arc::new(Header { version, entries }), expires_at));
        Some(RollUndo { header, dropped })
    }

    /// Removes the ended segments from the entries, and returns their buckets.
    fn drop_ended(&mut self, entries: &mut Vec<Entry>, plan: RollPlan, now: u64) -> Vec<((u64, u64), Bucket)> {
        let RollPlan { retention, bug, .. } = plan;
        let guard = if bug == Some(Bug::NoGuard) { 0 } else { retention.guard() };
        let newest = entries.len().saturating_sub(retention.segments as usize);
        let mut ended = Vec::new();
        let mut position = 0;
        entries.retain(|entry| {
            position += 1;
            let has_ended = match bug {
                Some(Bug::NeverDrops) => false,
                Some(Bug::KeepsNewestSegments) => position <= newest,
                _ => entry.closed.is_some_and(|closed| closed + retention.retain + guard <= now),
            };
            if has_ended {
                ended.push((entry.id, entry.buckets));
            }
            !has_ended
        });
        let names = ended.into_iter().flat_map(|(id, buckets)| (0..buckets).map(move |bucket| (id, bucket)));
        names.filter_map(|name| self.buckets.remove(&name).map(|bucket| (name, bucket))).collect()
    }

    /// Returns the number of buckets of the next segment, from the keys of the last one. The number halves at most, and
    /// becomes four times as large at most.
    fn proposal(&self, last: Option<&Entry>, retention: Retention, now: u64, bug: Option<Bug>) -> u64 {
        let Some(last) = last else { return 1 };
        let sets = (0..last.buckets).filter_map(|bucket| self.buckets.get(&(last.id, bucket)));
        let keys: u64 = sets.map(|set| set.members.len() as u64).sum();
        let age = now.saturating_sub(last.opened).clamp(1, retention.length());
        let expected = keys as f64 * retention.length() as f64 / age as f64;
        let wanted = (expected / FILL + 1.0 - ROUNDED_UP) as u64;
        let buckets = wanted.clamp(last.buckets.div_ceil(2), last.buckets * 4).clamp(1, 65_536);
        if bug == Some(Bug::PowerOfTwoBuckets) { buckets.next_power_of_two() } else { buckets }
    }

    /// Returns the memory of the slot.
    pub(super) fn size(&self) -> PackedSize {
        let sizes = || self.buckets.values().map(|set| set.members.len());
        PackedSize {
            members: sizes().sum(),
            fullest: sizes().max().unwrap_or_default(),
            bytes: HEADER_BYTES + sizes().map(|members| BUCKET_BYTES + allocated(8 + 8 * members)).sum::<usize>(),
            segments: self.header.as_ref().map_or(0, |(header, _)| header.segments()),
        }
    }
}

/// The times of a roll on the master's clock, and the time that the segments get. Both are equal without a bug.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollClocks {
    pub(super) server: u64,
    pub(super) segments: u64,
}

/// The memory of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedSize {
    pub(super) members: usize,
    pub(super) fullest: usize,
    pub(super) bytes: usize,
    pub(super) segments: usize,
}

/// The bytes of a bucket besides its members: name, entries of both tables, and object. Measured on Redis 7.0.
const BUCKET_BYTES: usize = 140;
const HEADER_BYTES: usize = 200;

/// Returns the size class of an allocation. There are four classes for each doubling.
fn allocated(bytes: usize) -> usize {
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    let step = (bytes - 1).ilog2() - 2;
    bytes.next_multiple_of(1 << step)
}

/// Returns the first end of a segment on the grid of the slot that is at least three quarters of a segment away.
fn planned_end(now: u64, length: u64, offset: f64) -> u64 {
    let offset = (length as f64 * offset) as u64;
    let earliest = now + length * 3 / 4;
    (earliest.saturating_sub(offset) / length + 1) * length + offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_have_four_classes_for_each_doubling() {
        let classes = [(100, 112), (128, 128), (129, 160), (520, 640), (1_032, 1_280), (2_056, 2_560), (3_048, 3_072)];
        for (bytes, class) in classes {
            assert_eq!(allocated(bytes), class, "{bytes}");
        }
    }

    #[test]
    fn a_segment_ends_on_the_grid_at_least_three_quarters_of_its_length_later() {
        assert_eq!(planned_end(1_000, 100, 0.25), 1_125);
        assert_eq!(planned_end(1_080, 100, 0.25), 1_225);
        assert_eq!(planned_end(1_025, 100, 0.25), 1_125);
    }
}
