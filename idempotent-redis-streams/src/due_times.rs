//! When the entries that were put off are due, as far as this process knows.
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Only a hint: entries that another process put off are found by looking now and then.
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

    /// The next one.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).first().copied()
    }

    /// Forgets what is due, because it is looked for now.
    pub(crate) fn clear(&self, now: Instant) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        while times.first().is_some_and(|time| *time <= now) {
            times.pop_first();
        }
    }

    /// Ends when there is a new one. One that came before is not missed.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(crate) async fn changed(&self) {
        self.sooner.notified().await;
    }
}
