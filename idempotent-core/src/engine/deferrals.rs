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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Clock, Identity, Scene, SystemClock};

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(name: &str) -> Key {
        Identity::new(Scene::Mq, "test", name).key("test").unwrap()
    }

    #[test]
    fn a_count_grows_until_its_key_is_forgotten_or_expires() {
        let (deferrals, now) = (Deferrals::default(), SystemClock::new().now());
        assert_eq!([0; 3].map(|_| deferrals.count(&key("a"), MINUTE, now)), [0, 1, 2]);
        deferrals.count(&key("b"), MINUTE, now);
        deferrals.forget(&key("a"));
        assert_eq!(deferrals.count(&key("a"), MINUTE, now), 0);
        assert_eq!(deferrals.count(&key("b"), MINUTE, now), 1);
        deferrals.forget(&key("a"));
        deferrals.forget(&key("b"));
        assert!(!deferrals.has_entries.load(Ordering::Relaxed));
        assert_eq!(deferrals.count(&key("b"), MINUTE, now), 0);
        assert_eq!(deferrals.count(&key("b"), MINUTE, now + MINUTE), 0);
    }

    #[test]
    fn a_full_map_counts_known_keys_and_makes_room_once_counts_expire() {
        let (deferrals, now) = (Deferrals::default(), SystemClock::new().now());
        for nth in 0..Deferrals::CAPACITY {
            deferrals.count(&key(&nth.to_string()), MINUTE, now);
        }
        assert_eq!([0; 2].map(|_| deferrals.count(&key("new"), MINUTE, now)), [0, 0]);
        assert_eq!(deferrals.count(&key("0"), 2 * MINUTE, now), 1);
        assert_eq!([0; 2].map(|_| deferrals.count(&key("new"), MINUTE, now + MINUTE)), [0, 1]);
        assert_eq!(deferrals.count(&key("0"), MINUTE, now + MINUTE), 2);
        assert_eq!(deferrals.entries.lock().unwrap().len(), 2);
    }
}
