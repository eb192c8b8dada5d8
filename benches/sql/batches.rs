//! Many messages in two round trips, compared with single runs.
use std::sync::Arc;

use idempotent::Executor;

use crate::cases::{CONCURRENCIES, Side};
use crate::ours;
use crate::report::{Pair, Report, drive};

pub const CASE: &str = "batch of 64, to one by one";
const BATCH: u64 = 64;
const ROUNDS: u64 = 5;
/// The batches of a round, by concurrency.
const BATCHES: [u64; 2] = [3, 16];
/// Unused ranges of numbers, one for each mode.
const FROM: [u64; 2] = [1 << 41, 1 << 42];

/// Measures tasks with whole batches, and tasks with single runs.
pub async fn all(report: &Report, side: &Side) {
    if !report.wants(side.name, CASE) {
        return;
    }
    let executor = Executor::new(side.store.clone());
    let alone = executor.clone();
    let batch = move |number: u64| {
        let first = FROM[0] + number * BATCH;
        ours::run_batch(executor.clone(), first..first + BATCH)
    };
    let singles = move |number: u64| {
        let executor = alone.clone();
        async move {
            let first = FROM[1] + number * BATCH;
            for number in first..first + BATCH {
                ours::run(executor.clone(), number).await;
            }
        }
    };
    let mut from = 0;
    for (at, tasks) in CONCURRENCIES.into_iter().enumerate() {
        let mut rounds = report.rounds(ROUNDS, BATCHES[at], tasks);
        rounds.operations = rounds.operations.min(BATCHES[at]);
        // Opens connections for all tasks.
        drive(tasks, from, rounds.operations, &Arc::new(batch.clone())).await;
        from += rounds.operations;
        let Pair { value, floor, ratio } = rounds.nanos(from, batch.clone(), singles.clone()).await.rates();
        from += rounds.rounds * rounds.operations;
        let pair = Pair { value: value * BATCH as f64, floor: floor * BATCH as f64, ratio };
        report.pair((side.name, CASE, usize::try_from(tasks).ok()), "runs/s", pair, side.goals.batch[at]);
    }
}
