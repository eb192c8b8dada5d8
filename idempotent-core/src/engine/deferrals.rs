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
    has_entries: AtomicBool,
    entries: Mutex<HashMap<u128, Deferral>>,
}

#[derive(Debug)]
struct Deferral {
    count: u32,
    expires_at: Instant,
}

impl Deferrals {
    const CAPACITY: usize = 10_000;

    /// Counts one more deferral of `key`, remembered for `rest` of the lease; says how many there were before.
    pub(crate) fn count(&self, key: &Key, remember_for: Duration, now: Instant) -> u32 {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_entries.store(true, Ordering::Relaxed);
        if entries.len() >= Self::CAPACITY && !entries.contains_key(&key.hash()) {
            entries.retain(|_, deferral| deferral.expires_at > now);
            if entries.len() >= Self::CAPACITY {
                return 0;
            }
        }
        let deferral = entries.entry(key.hash()).or_insert(Deferral { count: 0, expires_at: now });
        if deferral.expires_at <= now {
            deferral.count = 0;
        }
        deferral.expires_at = now + remember_for;
        deferral.count = deferral.count.saturating_add(1);
        deferral.count - 1
    }

    /// The key is settled: the next time it is in flight is another story.
    pub(crate) fn forget(&self, key: &Key) {
        if !self.has_entries.load(Ordering::Relaxed) {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&key.hash());
        self.has_entries.store(!entries.is_empty(), Ordering::Relaxed);
    }
}
