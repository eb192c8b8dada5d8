//! The memory of packed markers, which are added to their sets one by one, in random order.
use idempotent_harness::servers::RedisServer;

use crate::PACKED;
use crate::packed::{mixed, set_key};
use crate::pipeline::Pipeline;
use crate::report::{Goal, Report};

/// The mean number of members of a set.
const MEAN: u64 = 381;
/// A set with more members is converted to a table, which needs seven times the memory.
const LARGEST: i64 = 512;
/// The keys of a pass over the sets.
const PASS: u64 = 500_000;
const SLOTS: u64 = 16_384;
/// The commands in one write.
const AT_ONCE: usize = 512;
/// A time in seconds that is far in the future.
const LATER: &[u8] = b"9000000000";

pub fn all(report: &Report, is_full: bool) {
    let keys = match (report.is_tried(), is_full) {
        (true, _) => 20_000,
        (false, false) => 10_000_000,
        (false, true) => 100_000_000,
    };
    let cases = ["memory of a key, used", "memory of a key, resident", "largest set", "sets above 512"];
    let cases = cases.map(|case| format!("{case}, of {keys} keys"));
    if !cases.iter().any(|case| report.wants(PACKED, case)) {
        return;
    }
    let server = RedisServer::start();
    let mut pipeline = Pipeline::connect(&server);
    let read = || ["used_memory", "used_memory_rss"].map(|name| server.info(name).parse::<f64>().unwrap());
    let before = read();
    let sets = fill(&mut pipeline, keys);
    let after = read();
    let sizes = sizes(&mut pipeline, sets);
    assert_eq!(sizes.iter().sum::<i64>(), keys as i64, "each key is a member");
    let of_key = |at: usize| (after[at] - before[at]) / keys as f64;
    let above = sizes.iter().filter(|size| **size > LARGEST).count() as f64;
    let largest = sizes.into_iter().max().unwrap() as f64;
    report.value((PACKED, &cases[0], None), "B", of_key(0), Goal::AtMost(9.5));
    report.value((PACKED, &cases[1], None), "B", of_key(1), Goal::AtMost(12.0));
    report.value((PACKED, &cases[2], None), "members", largest, Goal::None);
    report.value((PACKED, &cases[3], None), "sets", above, Goal::AtMost(0.0));
}

/// Adds the keys, and returns the number of sets. A key chooses its set by its hash.
fn fill(pipeline: &mut Pipeline, keys: u64) -> u64 {
    let sets = keys.div_ceil(MEAN);
    for from in (0..keys).step_by(PASS as usize) {
        let pass = from..(from + PASS).min(keys);
        let mut members: Vec<_> = pass.map(|number| (mixed(number ^ (1 << 62)) % sets, mixed(number) as i64)).collect();
        members.sort_unstable_by_key(|(set, _)| *set);
        for (at, own) in members.chunk_by(|(one, _), (other, _)| one == other).enumerate() {
            let key = name(own[0].0);
            let texts: Vec<_> = own.iter().map(|(_, member)| member.to_string()).collect();
            let mut parts: Vec<&[u8]> = vec![&b"SADD"[..], key.as_bytes()];
            parts.extend(texts.iter().map(|text| text.as_bytes()));
            pipeline.add(&parts);
            if at % AT_ONCE == AT_ONCE - 1 {
                pipeline.answers();
            }
        }
        pipeline.answers();
    }
    for set in 0..sets {
        pipeline.add(&[b"EXPIREAT", name(set).as_bytes(), LATER]);
        if set % AT_ONCE as u64 == 0 {
            pipeline.answers();
        }
    }
    pipeline.answers();
    sets
}

/// Returns the number of members of each set.
fn sizes(pipeline: &mut Pipeline, sets: u64) -> Vec<i64> {
    let mut sizes = Vec::new();
    for set in 0..sets {
        pipeline.add(&[b"SCARD", name(set).as_bytes()]);
        if set % AT_ONCE as u64 == 0 {
            sizes.extend(pipeline.answers());
        }
    }
    sizes.extend(pipeline.answers());
    sizes.iter().map(|size| size.integer().unwrap()).collect()
}

fn name(set: u64) -> String {
    set_key(12, set % SLOTS, set / SLOTS)
}
