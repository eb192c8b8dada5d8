//! What a fast tier was good for.
use std::sync::atomic::{AtomicU64, Ordering};

/// Counted by one [`TieredStore`](crate::TieredStore) and its clones since it was built. `hits` and `misses` add up to
/// the claims.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TierCounts {
    /// Claims answered by the fast tier, and not asked of the durable store.
    pub hits: u64,
    /// Claims that went on to the durable store.
    pub misses: u64,
    /// Facts written after a claim that found its key consumed.
    pub repaired: u64,
    /// Facts written after a completion.
    pub remembered: u64,
    /// Calls of the fast tier, with the reading of the record before a write, that failed or took too long.
    pub failed: u64,
}

/// On cache lines of their own: each claim writes them, and should not slow what other threads only read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    repaired: AtomicU64,
    remembered: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    pub(super) fn asked(&self, known: bool) {
        one_more(if known { &self.hits } else { &self.misses });
    }

    pub(super) fn repaired(&self) {
        one_more(&self.repaired);
    }

    pub(super) fn remembered(&self) {
        one_more(&self.remembered);
    }

    pub(super) fn failed(&self) {
        one_more(&self.failed);
    }

    pub(super) fn read(&self) -> TierCounts {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TierCounts {
            hits: now(&self.hits),
            misses: now(&self.misses),
            repaired: now(&self.repaired),
            remembered: now(&self.remembered),
            failed: now(&self.failed),
        }
    }
}

fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
