//! The duration of claims during other work.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotent::Store;
use idempotent::store::{Claim, ClaimHandle, ClaimRequest, OnExpiry, OwnerToken, Release, ReleaseKind};
use tokio::time::{MissedTickBehavior, interval};

use crate::keys;

/// The tasks that claim.
pub const CLAIMERS: usize = 4;

/// Returns the time in ms within which 99 of 100 claims are answered while `work` runs. Claims take their numbers from `next`.
/// With a pause between the claims of a task, each claimed key is deleted again.
pub async fn p99_during(
    store: &Arc<dyn Store>,
    next: &Arc<AtomicU64>,
    pause: Option<Duration>,
    work: impl Future<Output = ()>,
) -> f64 {
    let over = Arc::new(AtomicBool::new(false));
    let claimers: Vec<_> = (0..CLAIMERS)
        .map(|_| {
            let (store, next, over) = (store.clone(), next.clone(), over.clone());
            tokio::spawn(async move {
                let (mut times, mut pauses) = (Vec::new(), pause.map(interval));
                if let Some(pauses) = &mut pauses {
                    pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
                }
                while times.is_empty() || !over.load(Ordering::Relaxed) {
                    if let Some(pauses) = &mut pauses {
                        pauses.tick().await;
                    }
                    let request = request(next.fetch_add(1, Ordering::Relaxed));
                    let start = Instant::now();
                    let claim = store.claim(&request).await.unwrap();
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                    assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
                    if pause.is_some() {
                        store.release(&held(&request), &deletion()).await.unwrap();
                    }
                }
                times
            })
        })
        .collect();
    work.await;
    over.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for claimer in claimers {
        times.extend(claimer.await.unwrap());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Returns the proof of a claim whose number is not needed.
pub fn held(request: &ClaimRequest) -> ClaimHandle {
    ClaimHandle::unanswered(request.key.clone(), request.owner)
}

fn deletion() -> Release {
    Release { kind: ReleaseKind::Delete, delay: Duration::ZERO, retention: Duration::ZERO, error: "".into() }
}

pub fn request(number: u64) -> ClaimRequest {
    ClaimRequest {
        key: keys::identity(number).key("bench").unwrap(),
        owner: OwnerToken(u128::from(number) + 1),
        lease: Duration::from_secs(3_600),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(24 * 3_600),
        display: None,
    }
}
