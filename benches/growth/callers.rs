//! More and more concurrent callers. The cost is flat if more callers never lower the throughput by more than a fifth.
use std::sync::Arc;

use idempotent::{Executor, MemoryStore, PostgresStore, RedisStore};
use idempotent_harness::servers::{PostgresServer, RedisServer};

use crate::report::{Pair, Report, drive};
use crate::runs;
use crate::sizes::{FLAT, at_size, compare, grouped};

const CASE: &str = "run by";

pub async fn all(report: &Report) {
    if report.wants("memory", CASE) {
        of(report, "memory", &Executor::new(MemoryStore::new()), 40_960).await;
    }
    if report.wants("redis", CASE) {
        let server = RedisServer::start();
        let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
        of(report, "redis", &Executor::new(store), 4_096).await;
    }
    if report.wants("postgres", CASE) {
        let server = PostgresServer::start_durable();
        let store = PostgresStore::builder(server.url()).connections(16).create(true).connect().await.unwrap();
        of(report, "postgres", &Executor::new(store), 1_024).await;
    }
}

/// Reports the time per run for each number of callers, compared with the best of the smaller numbers.
async fn of(report: &Report, name: &'static str, executor: &Executor, operations: u64) {
    let (callers, operations) =
        if report.is_tried() { (vec![1, 4], 64) } else { (vec![1, 4, 16, 64, 256, 1_024], operations) };
    let sizes: Vec<_> = callers
        .iter()
        .map(|callers| {
            let (executor, callers) = (executor.clone(), *callers);
            at_size(move |round| {
                let executor = executor.clone();
                let operation = move |number| runs::fail(executor.clone(), number);
                async move { drive(callers, round * operations, operations, &Arc::new(operation)).await }
            })
        })
        .collect();
    let pairs = compare(report, 15, operations, &sizes).await;
    let mut best = pairs[0].value;
    for (callers, Pair { value, .. }) in callers.iter().zip(&pairs).skip(1) {
        let pair = Pair { value: *value, floor: best, ratio: value / best };
        report.pair(
            (name, &format!("{CASE} {} callers, to the best of fewer", grouped(*callers)), None),
            "ns",
            pair,
            FLAT,
        );
        best = best.min(*value);
    }
}
