//! Counters of a fast tier.
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one [`TieredStore`](crate::TieredStore) and its clones since it was built.
///
/// The sum of `hits` and `misses` is the number of claims.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TierCounts {
    /// Claims that the fast tier answered without a call to the durable store.
    pub hits: u64,
    /// Claims that continued to the durable store.
    pub misses: u64,
    /// Facts written after a claim that found its key consumed.
    pub repaired: u64,
    /// Facts written after a completion.
    pub remembered: u64,
    /// Calls of the fast tier that failed or took too long, including the read of the record before a write.
    pub failed: u64,
}

/// Atomic counters. Aligned to cache lines of their own, since each claim writes them while other threads read
/// neighbouring fields.
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
    pub(super) fn count_lookup(&self, known: bool) {
        increment(if known { &self.hits } else { &self.misses });
    }

    pub(super) fn count_repaired(&self) {
        increment(&self.repaired);
    }

    pub(super) fn count_remembered(&self) {
        increment(&self.remembered);
    }

    pub(super) fn count_failed(&self) {
        increment(&self.failed);
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

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
