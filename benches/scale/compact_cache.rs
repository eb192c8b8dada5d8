//! The compact cache of consumed keys: `cargo xtask bench scale`. A program of its own, because it counts its allocations.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, unreachable_pub, dead_code)]
#[path = "../core/report.rs"]
mod report;

use std::alloc::System;
use std::hint::black_box;
use std::time::{Duration, Instant};

use idempotent::FencingToken;
use idempotent_redis::__private::{CompactEntry, CompactTable};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use self::report::{Goal, Report};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MEMORY: &str = "memory of the compact cache";
const LOOK_UP: &str = "a look-up in the compact cache";
const HOUR: Duration = Duration::from_secs(3_600);
/// The look-ups of a round, and the rounds.
const LOOK_UPS: u64 = 1_000_000;
const ROUNDS: u64 = 9;

fn main() {
    let report = Report::from_args("scale");
    if ![MEMORY, LOOK_UP].iter().any(|case| report.wants("redis", case)) {
        return;
    }
    let is_full = std::env::args().any(|argument| argument == "--full");
    let keys = report.keys() * if is_full { 10 } else { 1 };
    let start = Instant::now();
    let region = Region::new(ALLOCATOR);
    let table = CompactTable::new(usize::try_from(keys).unwrap(), start);
    for number in 0..keys {
        let entry = CompactEntry { fencing: FencingToken(number), has_no_fingerprint: true };
        assert!(table.insert(hash(number), entry, start + HOUR));
    }
    let change = region.change();
    let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
    // Keys whose bucket is full replace others, so the table has fewer than it was given.
    report.value(("redis", MEMORY, None), "B", bytes / table.len() as f64, Goal::AtMost(33.0));

    let (rounds, look_ups) = if report.is_tried() { (1, 1_000) } else { (ROUNDS, LOOK_UPS) };
    let mut nanos: Vec<_> =
        (0..rounds).map(|round| look_up(&table, keys, round * look_ups..(round + 1) * look_ups)).collect();
    nanos.sort_by(f64::total_cmp);
    report.value(("redis", LOOK_UP, Some(1)), "ns", nanos[nanos.len() / 2], Goal::AtMost(250.0));
}

/// Returns the ns of a look-up, without the reading of the clock for a known key. Half of the keys were never added.
fn look_up(table: &CompactTable, keys: u64, numbers: std::ops::Range<u64>) -> f64 {
    let (count, start) = (numbers.end - numbers.start, Instant::now());
    let found = numbers.filter(|number| {
        let key = number.wrapping_mul(7_919) % (2 * keys);
        black_box(table.get(hash(key), || start)).is_some()
    });
    let found = found.count();
    let elapsed = start.elapsed();
    assert!(found > 0, "the table has keys");
    elapsed.as_nanos() as f64 / count as f64
}

/// Returns a hash as random as that of a key (splitmix64).
fn hash(number: u64) -> u128 {
    let half = |seed: u64| {
        let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (u128::from(half(2 * number + 1)) << 64) | u128::from(half(2 * number + 2))
}
