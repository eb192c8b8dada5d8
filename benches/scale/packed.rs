//! A prototype of packed markers, which no store uses. A consumed key is one member of a set of integers. There is one set for each
//! segment of time and each bucket of a slot. A header for each slot lists its segments.
use std::ops::Range;

use idempotent_harness::servers::{RedisServer, Value};

use crate::pipeline::{DEPTH, Pipeline};
use crate::records::{LEASE, MEMORY, TTL, guard, owner};

const CLAIM: &str = include_str!("packed/claim.lua");
const COMPLETE: &str = include_str!("packed/complete.lua");

/// The number of slots, with one set for each segment.
pub const SLOTS: u64 = 4_096;
/// The segments that are filled before the measurement. The last one is open.
pub const SEGMENTS: u64 = 9;
/// The time for which a short record follows a completion, in ms.
const EXACT: &[u8] = b"60000";
/// A time in seconds that is far in the future.
const LATER: &[u8] = b"9000000000";
/// The number of members at which a segment is closed. No segment is closed here.
const FULL: &[u8] = b"1000000";

/// The scripts of the prototype, with a number of live segments.
pub struct Packed {
    pipeline: Pipeline,
    claim: Vec<u8>,
    complete: Vec<u8>,
    live: u64,
    header: Vec<u8>,
    /// The members of each set that [`fill`] wrote.
    filled: u64,
}

impl Packed {
    /// Prepares the prototype on a server whose sets have this number of members, and writes the headers.
    pub fn new(server: &RedisServer, live: u64, filled: u64) -> Self {
        let mut pipeline = Pipeline::connect(server);
        let (claim, complete) = (pipeline.load(CLAIM), pipeline.load(COMPLETE));
        let header = header(live);
        for slot in 0..SLOTS {
            pipeline.add(&[b"SET", header_key(live, slot).as_bytes(), &header, b"PX", b"604800000"]);
        }
        pipeline.answers();
        Self { pipeline, claim, complete, live, header, filled }
    }

    /// Claims and completes new keys.
    pub fn cycles(&mut self, numbers: Range<u64>) {
        for from in numbers.clone().step_by(DEPTH as usize) {
            let chunk = from..(from + DEPTH).min(numbers.end);
            chunk.clone().for_each(|number| self.claim(number, slot_of(number), mixed(number) as i64));
            let claimed = self.pipeline.answers();
            for (number, answer) in chunk.zip(claimed) {
                let Value::Integer(stamp) = answer else { panic!("{number} is not new: {answer:?}") };
                self.complete(number, stamp);
            }
            let completed = self.pipeline.answers();
            assert!(completed.iter().all(|answer| matches!(answer, Value::Bytes(_))), "{completed:?}");
        }
    }

    /// Claims keys that are members, and that have no record.
    pub fn duplicates(&mut self, numbers: Range<u64>) {
        for from in numbers.clone().step_by(DEPTH as usize) {
            for number in from..(from + DEPTH).min(numbers.end) {
                let (slot, random) = (slot_of(number), mixed(number ^ 0x5555_5555));
                let segment = SEGMENTS - 1 - random % self.live;
                self.claim(number, slot, member(segment, slot, (random >> 32) % self.filled));
            }
            let answers = self.pipeline.answers();
            let is_marked = |answer: &Value| answer.items().first().is_some_and(|kind| kind.text() == "M");
            assert!(answers.iter().all(is_marked), "{answers:?}");
        }
    }

    fn claim(&mut self, number: u64, slot: u64, member: i64) {
        let keys = 2 + self.live;
        let (record, header, count) = (record_key(number, slot), header_key(self.live, slot), keys.to_string());
        let sets: Vec<_> = (0..self.live).map(|age| set_key(SEGMENTS - 1 - age, slot, 0)).collect();
        let (member, owner) = (member.to_string(), owner(number));
        let mut parts: Vec<&[u8]> = vec![&b"EVALSHA"[..], &self.claim[..]];
        parts.extend([count.as_bytes(), record.as_bytes(), header.as_bytes()]);
        parts.extend(sets.iter().map(|set| set.as_bytes()));
        parts.extend([LEASE, MEMORY, TTL, &self.header[..], member.as_bytes(), &owner[..]]);
        self.pipeline.add(&parts);
    }

    fn complete(&mut self, number: u64, stamp: i64) {
        let slot = slot_of(number);
        let (record, header, set) =
            (record_key(number, slot), header_key(self.live, slot), set_key(SEGMENTS - 1, slot, 0));
        let (member, guard) = ((mixed(number) as i64).to_string(), guard(number, stamp));
        let keys = [record.as_bytes(), header.as_bytes(), set.as_bytes()];
        let values = [EXACT, &self.header[..], member.as_bytes(), &guard[..], LATER, LATER, FULL];
        let parts = [&[&b"EVALSHA"[..], &self.complete[..], &b"3"[..]][..], &keys[..], &values[..]].concat();
        self.pipeline.add(&parts);
    }
}

/// Fills the sets of all segments with this number of members each.
pub fn fill(server: &RedisServer, members: u64) {
    let mut pipeline = Pipeline::connect(server);
    for segment in 0..SEGMENTS {
        for slot in 0..SLOTS {
            let key = set_key(segment, slot, 0);
            let texts: Vec<_> = (0..members).map(|index| member(segment, slot, index).to_string()).collect();
            let mut parts: Vec<&[u8]> = vec![&b"SADD"[..], key.as_bytes()];
            parts.extend(texts.iter().map(|text| text.as_bytes()));
            pipeline.add(&parts);
            pipeline.add(&[b"EXPIREAT", key.as_bytes(), LATER]);
            if slot % DEPTH == DEPTH - 1 {
                pipeline.answers();
            }
        }
    }
}

/// Returns the key of a set.
pub fn set_key(segment: u64, slot: u64, bucket: u64) -> String {
    format!("orders:w:d:{segment}:{{{}}}{bucket:x}", tag(slot))
}

/// Mixes the bits of a number, as a hash does.
pub fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn slot_of(number: u64) -> u64 {
    mixed(number ^ 0xaaaa_aaaa) % SLOTS
}

fn member(segment: u64, slot: u64, index: u64) -> i64 {
    mixed((1 << 60) | (segment << 48) | (slot << 24) | index) as i64
}

/// Returns the text in braces, of which each slot of a cluster has one. One server needs no particular text.
fn tag(slot: u64) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    [12, 6, 0].map(|shift| char::from(DIGITS[(slot >> shift) as usize % 64])).iter().collect()
}

fn record_key(number: u64, slot: u64) -> String {
    format!("orders:mq:bench:{{{}}}{:022}", tag(slot), number)
}

/// Returns the key of a header. The number of live segments is in the place of the class of retention.
fn header_key(live: u64, slot: u64) -> String {
    format!("orders:p:{live}:{{{}}}", tag(slot))
}

/// Returns a header: a version, and 17 bytes for each live segment.
fn header(live: u64) -> Vec<u8> {
    let mut header = b"\x82H\x00\x00\x00\x01".to_vec();
    for segment in (SEGMENTS - live)..SEGMENTS {
        header.extend_from_slice(&(segment as u32).to_be_bytes());
        header.extend_from_slice(&[0; 13]);
    }
    header
}
