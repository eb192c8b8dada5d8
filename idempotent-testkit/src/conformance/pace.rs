//! Laws in real time: a busy machine may take longer for a law's own steps than a lease lasts.
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The leases of a law in real time, one for each try. A law in which the machine stood still for too long has shown nothing,
/// and is tried again with the next one.
pub(crate) const LEASES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];

/// The lease of a law in real time, and how much of the time it waited on purpose.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) lease: Duration,
    begun: Instant,
    waited: Mutex<Duration>,
}

impl Pace {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease, begun: Instant::now(), waited: Mutex::default() }
    }

    /// Waits for so long.
    pub(crate) async fn pass(&self, by: Duration) {
        tokio::time::sleep(by).await;
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// Returns whether the law's own steps took so long that a lease may have ended among them.
    pub(crate) fn was_too_slow(&self) -> bool {
        let waited = *self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        self.begun.elapsed().saturating_sub(waited) >= self.lease / 2
    }
}
