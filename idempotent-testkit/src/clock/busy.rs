//! How many calls are in flight on threads that a runtime does not see.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts calls in flight, so that a virtual clock stands still while a store works on another thread. Clones
/// share the count.
#[derive(Clone, Default)]
pub struct InFlightCalls(Arc<Inner>);

#[derive(Default)]
struct Inner {
    in_flight: AtomicUsize,
    ended: Notify,
}

/// One call in flight, until dropped.
#[derive(Debug)]
#[must_use = "dropped at once it counts nothing"]
pub struct InFlightGuard(InFlightCalls);

impl InFlightCalls {
    /// One more call, until the guard is dropped.
    pub fn enter(&self) -> InFlightGuard {
        self.0.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlightGuard(self.clone())
    }

    /// Whether no call is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.in_flight.load(Ordering::SeqCst) == 0
    }

    /// Ends when no call is in flight.
    ///
    /// # Cancellation
    /// Dropping it stops waiting.
    pub async fn idle(&self) {
        loop {
            let mut ended = std::pin::pin!(self.0.ended.notified());
            // Listens before it looks: a call that ends in between is heard.
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
