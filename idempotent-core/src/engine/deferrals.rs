//! How often a key in flight was put off: each time it is told to wait longer.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Key;

/// Bounded, and only a hint: what is forgotten starts again with the shortest delay.
#[derive(Debug, Default)]
pub(crate) struct Deferrals {
    /// So that a run whose key was never put off need not look.
    any: AtomicBool,
    known: Mutex<HashMap<u128, Deferral>>,
}

#[derive(Debug)]
struct Deferral {
    times: u32,
    forget: Instant,
}

impl Deferrals {
    const MOST: usize = 10_000;

    /// Counts one more deferral of `key`, remembered for `rest` of the lease; says how many there were before.
    pub(crate) fn count(&self, key: &Key, rest: Duration, now: Instant) -> u32 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(true, Ordering::Relaxed);
        if known.len() >= Self::MOST && !known.contains_key(&key.hash()) {
            known.retain(|_, deferral| deferral.forget > now);
            if known.len() >= Self::MOST {
                return 0;
            }
        }
        let deferral = known.entry(key.hash()).or_insert(Deferral { times: 0, forget: now });
        if deferral.forget <= now {
            deferral.times = 0;
        }
        deferral.forget = now + rest;
        deferral.times = deferral.times.saturating_add(1);
        deferral.times - 1
    }

    /// The key is settled: the next time it is in flight is another story.
    pub(crate) fn forget(&self, key: &Key) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&key.hash());
        self.any.store(!known.is_empty(), Ordering::Relaxed);
    }
}
