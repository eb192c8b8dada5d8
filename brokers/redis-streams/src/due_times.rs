//! Due times of the entries that this process has delayed.
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Due times, as a hint. Entries that another process has delayed are found by periodic searches.
#[derive(Debug, Default)]
pub(crate) struct DueTimes {
    times: Mutex<BTreeSet<Instant>>,
    sooner: Notify,
}

impl DueTimes {
    pub(crate) fn at(&self, time: Instant) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).insert(time);
        self.sooner.notify_one();
    }

    /// Returns the next due time.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).first().copied()
    }

    /// Removes the times up to `now`, because a search follows.
    pub(crate) fn clear(&self, now: Instant) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        while times.first().is_some_and(|time| *time <= now) {
            times.pop_first();
        }
    }

    /// Waits for a new due time. Times added before the call are not missed.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.sooner.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_times_that_are_over_are_removed() {
        let (due, now) = (DueTimes::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for time in [later, now] {
            due.at(time);
        }
        assert_eq!(due.next(), Some(now));
        due.clear(now);
        assert_eq!(due.next(), Some(later));
    }

    #[test]
    fn a_wait_ends_at_a_new_time() {
        let due = DueTimes::default();
        assert_eq!(due.changed().now_or_never(), None);
        due.at(Instant::now());
        assert_eq!(due.changed().now_or_never(), Some(()));
    }
}
