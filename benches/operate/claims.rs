//! The duration of claims while something else runs.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotent::store::{Claim, ClaimHandle, ClaimRequest, OnExpiry, OwnerToken, Release, ReleaseKind};
use tokio::time::{MissedTickBehavior, interval};

use crate::{Side, keys};

pub const CLAIMERS: usize = 4;
/// The time between two claims of a claimer. Workers that claim without a pause would saturate the machine and so hide the
/// effect of a listing.
const PAUSE: Duration = Duration::from_millis(2);
/// An unused range of numbers.
const FROM: u64 = 1 << 43;

static NEXT: AtomicU64 = AtomicU64::new(FROM);

/// Returns the time in ms within which 99 of 100 claims are answered while `something` runs. Each claimed key is deleted again.
pub async fn beside(side: &dyn Side, something: impl Future<Output = ()>) -> f64 {
    let over = Arc::new(AtomicBool::new(false));
    let claimers: Vec<_> = (0..CLAIMERS)
        .map(|_| {
            let (store, over) = (side.store(), over.clone());
            tokio::spawn(async move {
                let (mut times, mut pause) = (Vec::new(), interval(PAUSE));
                pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while times.is_empty() || !over.load(Ordering::Relaxed) {
                    pause.tick().await;
                    let request = request(NEXT.fetch_add(1, Ordering::Relaxed));
                    let start = Instant::now();
                    let claim = store.claim(&request).await.unwrap();
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                    assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
                    store.release(&held(&request), &deletion()).await.unwrap();
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
