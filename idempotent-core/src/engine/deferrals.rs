//! Counts of how often duplicates of each key in flight were deferred, so that the delay can grow.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Key;

/// The number of recent deferrals of each key.
///
/// The map is bounded and only a hint: a forgotten key starts again with the shortest delay.
#[derive(Debug, Default)]
pub(crate) struct Deferrals {
    /// False while the map is empty, which spares a settled run the lock.
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

    /// Counts one more deferral of `key`, kept for `remember_for`, and returns the number of earlier ones.
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

    /// Removes the count of a settled key.
    pub(crate) fn forget(&self, key: &Key) {
        if !self.has_entries.load(Ordering::Relaxed) {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&key.hash());
        self.has_entries.store(!entries.is_empty(), Ordering::Relaxed);
    }
}
