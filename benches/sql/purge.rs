//! The duration of claims while expired records are removed.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotent::store::{Claim, ClaimRequest, OnExpiry, OwnerToken};

use crate::cases::Side;
use crate::keys;
use crate::report::{Goal, Pair, Report};
use crate::rounds::median;

pub const CASE: &str = "claims' p99 during a purge, to idle";
const CLAIMERS: u64 = 4;
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
    let (mut idle, mut busy, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        side.by_hand.fill(rows).await;
        let start = Instant::now();
        let during = beside(side, &next, async {
            let mut left = rows;
            while left > 0 {
                left -= purge.capabilities().purge.unwrap().purge(left).await.unwrap();
            }
        });
        let during = during.await;
        let long = start.elapsed().max(Duration::from_millis(20));
        let alone = beside(side, &next, tokio::time::sleep(long)).await;
        ratios.push(during / alone);
        idle.push(alone);
        busy.push(during);
    }
    let pair = Pair { value: median(busy), floor: median(idle), ratio: median(ratios) };
    report.pair((side.name, CASE, usize::try_from(CLAIMERS).ok()), "ms", pair, Goal::AtMost(3.0));
}

/// Returns the time in ms within which 99 of 100 claims are answered while `something` runs.
async fn beside(side: &Side, next: &Arc<AtomicU64>, something: impl Future<Output = ()>) -> f64 {
    let over = Arc::new(AtomicBool::new(false));
    let claimers: Vec<_> = (0..CLAIMERS)
        .map(|_| {
            let (store, next, over) = (side.store.clone(), next.clone(), over.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let request = request(next.fetch_add(1, Ordering::Relaxed));
                    let start = Instant::now();
                    let claim = store.claim(&request).await.unwrap();
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                    assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
                }
                times
            })
        })
        .collect();
    something.await;
    over.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for claimer in claimers {
        times.extend(claimer.await.unwrap());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

pub fn request(number: u64) -> ClaimRequest {
    ClaimRequest {
        key: keys::identity(number).key("bench").unwrap(),
        owner: OwnerToken(u128::from(number)),
        lease: Duration::from_secs(3_600),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(3_600),
        display: None,
    }
}
