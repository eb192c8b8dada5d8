//! Claims in stores with more and more keys.
use std::sync::Arc;

use idempotent::{Executor, MemoryStore, RedisStore, Store};
use idempotent_harness::servers::RedisServer;

use crate::bare;
use crate::report::{Report, drive};
use crate::runs;
use crate::sizes::{FLAT, at_size, compare, grouped};

pub const DUPLICATE: &str = "duplicate";
pub const ABSENT: &str = "claim and release of an absent key";
/// Keys that are consumed by real runs; further ones are written in bulk.
pub const CONSUMED: u64 = 10_000;
pub const TASKS: u64 = 16;

/// Returns the numbers of keys.
pub fn numbers(report: &Report) -> Vec<u64> {
    if report.is_tried() { vec![1_000, 2_000] } else { vec![10_000, 100_000, 1_000_000, 10_000_000] }
}

pub fn wanted(report: &Report, store: &str) -> bool {
    [DUPLICATE, ABSENT].iter().any(|case| report.wants(store, case))
}

pub async fn memory(report: &Report) {
    bare::maps(report, &numbers(report), 20_000).await;
    if !wanted(report, "memory") {
        return;
    }
    let mut stores: Vec<(u64, Arc<dyn Store>)> = Vec::new();
    for keys in numbers(report) {
        let store = MemoryStore::builder().max_entries(usize::MAX).build();
        let executor = Executor::new(store.clone());
        drive(2, 0, keys, &Arc::new(move |number| consume(executor.clone(), number))).await;
        stores.push((keys, Arc::new(store)));
    }
    claims(report, "memory", &stores, 20_000).await;
}

pub async fn redis(report: &Report) {
    if !wanted(report, "redis") && !report.wants("redis-rs", bare::SET_AND_DELETE) {
        return;
    }
    let (mut servers, mut stores) = (Vec::new(), Vec::<(u64, Arc<dyn Store>)>::new());
    for keys in numbers(report) {
        let server = RedisServer::start();
        let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
        consume_first(&store, keys).await;
        fill_redis(&server, keys - CONSUMED.min(keys));
        servers.push((keys, server));
        stores.push((keys, Arc::new(store)));
    }
    bare::commands(report, &servers, 4_000).await;
    claims(report, "redis", &stores, 4_000).await;
}

/// Writes records of the same size as consumed ones.
fn fill_redis(server: &RedisServer, records: u64) {
    const EACH: u64 = 100_000;
    let script = "for i=ARGV[1]+0,ARGV[2]+0 do redis.call('SET',string.format('idempotent:rest:bench:{%022d}',i),\
                  '1790000000000000001','PX',604800000) end";
    for from in (0..records).step_by(EACH as usize) {
        let to = (from + EACH).min(records) - 1;
        server.command(&["EVAL", script, "0", &from.to_string(), &to.to_string()]);
    }
}

/// Consumes the first of these keys by real runs.
pub async fn consume_first(store: &(impl Store + Clone), keys: u64) {
    let executor = Executor::new(store.clone());
    drive(TASKS, 0, CONSUMED.min(keys), &Arc::new(move |number| consume(executor.clone(), number))).await;
}

async fn consume(executor: Executor, number: u64) {
    runs::run(executor.clone(), number).await;
}

/// Returns a number that is far from the ones of the neighbouring operations.
pub fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1
}

/// Returns the number of a key that no store has.
fn absent(number: u64) -> u64 {
    1_000_000_000_000 + spread(number) % 1_000_000_000
}

/// Measures duplicates and absent keys in stores of different sizes.
pub async fn claims(report: &Report, name: &'static str, stores: &[(u64, Arc<dyn Store>)], operations: u64) {
    let operations = if report.is_tried() { 64 } else { operations };
    for case in [DUPLICATE, ABSENT] {
        if !report.wants(name, case) {
            continue;
        }
        let sizes: Vec<_> = stores
            .iter()
            .map(|(keys, store)| {
                let (executor, known) = (Executor::new(store.clone()), (*keys).min(CONSUMED));
                at_size(move |round| {
                    let executor = executor.clone();
                    let operation = move |number: u64| {
                        let executor = executor.clone();
                        async move {
                            if case == DUPLICATE {
                                runs::run(executor, spread(number) % known).await;
                            } else {
                                runs::fail(executor, absent(number)).await;
                            }
                        }
                    };
                    async move { drive(TASKS, (round + 1) * operations, operations, &Arc::new(operation)).await }
                })
            })
            .collect();
        let pairs = compare(report, 21, operations, &sizes).await;
        for (_, store) in stores {
            let key = runs::identity(absent(operations)).key("idempotent").unwrap();
            assert!(store.peek(&key).await.unwrap().is_none(), "the key was released");
        }
        for ((keys, _), pair) in stores.iter().zip(pairs).skip(1) {
            let line = format!("{case} at {} keys, to {}", grouped(*keys), grouped(stores[0].0));
            report.pair((name, &line, usize::try_from(TASKS).ok()), "ns", pair, FLAT);
        }
    }
}
