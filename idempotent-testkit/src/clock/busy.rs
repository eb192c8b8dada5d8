//! A count of calls in flight on threads that a runtime does not see.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A counter of calls in flight, which stops a virtual clock while a store works on another thread. Clones share the
/// count.
#[derive(Clone, Default)]
pub struct InFlightCalls(Arc<Inner>);

#[derive(Default)]
struct Inner {
    in_flight: AtomicUsize,
    ended: Notify,
}

/// A guard for one call in flight, until it is dropped.
#[derive(Debug)]
#[must_use = "dropped at once it counts nothing"]
pub struct InFlightGuard(InFlightCalls);

impl InFlightCalls {
    /// Adds one call until the guard is dropped.
    pub fn enter(&self) -> InFlightGuard {
        self.0.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlightGuard(self.clone())
    }

    /// Returns whether no call is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.in_flight.load(Ordering::SeqCst) == 0
    }

    /// Waits until no call is in flight.
    ///
    /// # Cancellation
    /// Dropping the future stops the wait.
    pub async fn idle(&self) {
        loop {
            let mut ended = std::pin::pin!(self.0.ended.notified());
            // The listener is enabled before the check, so that a call that ends in between is noticed.
            ended.as_mut().enable();
            if self.is_idle() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let inner = &self.0.0;
        if inner.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            inner.ended.notify_waiters();
        }
    }
}

impl fmt::Debug for InFlightCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Busy({})", self.0.in_flight.load(Ordering::SeqCst))
    }
}
