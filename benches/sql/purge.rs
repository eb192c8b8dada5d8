//! The duration of claims while expired records are removed.
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::cases::Side;
use crate::claims::{CLAIMERS, p99_during};
use crate::report::{Goal, Pair, Report};

pub const CASE: &str = "claims' p99 during a purge, to idle";
const ROWS: usize = 100_000;
const ROUNDS: usize = 3;
/// An unused range of numbers.
const FROM: u64 = 1 << 43;

pub async fn all(report: &Report, side: &Side) {
    if !report.wants(side.name, CASE) {
        return;
    }
    let (rounds, rows) = if report.is_tried() { (1, 1_000) } else { (ROUNDS, ROWS) };
    let (next, purge) = (Arc::new(AtomicU64::new(FROM)), side.store.clone());
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        side.by_hand.fill(rows).await;
        let start = Instant::now();
        let during = p99_during(&side.store, &next, None, async {
            let mut left = rows;
            while left > 0 {
                left -= purge.capabilities().purge.unwrap().purge(left).await.unwrap();
            }
        });
        let during = during.await;
        let long = start.elapsed().max(Duration::from_millis(20));
        let alone = p99_during(&side.store, &next, None, tokio::time::sleep(long)).await;
        pairs.push((during, alone));
    }
    report.pair((side.name, CASE, Some(CLAIMERS)), "ms", Pair::medians(&pairs), Goal::AtMost(3.0));
}
