//! The pace of laws in real time: on a busy machine, a law's own steps may take longer than a lease.
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The leases of a law in real time, one for each try. A law that was delayed for too long is inconclusive, and is
/// repeated with the next lease.
pub(crate) const LEASES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];

/// The lease of a law in real time, and the time that the law waited on purpose.
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

    /// Waits for this time.
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
