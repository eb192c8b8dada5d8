//! The progress of a drain, and the number of runs that it waits for.
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A phase of a drain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DrainPhase {
    /// No call starts any more. Before this phase, no drain has begun.
    Draining = 1,
    /// Running handlers are dropped.
    Closed = 2,
}

/// The phase of a drain and the number of calls in progress.
///
/// Aligned to cache lines of its own, like the counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct DrainState {
    /// A [`DrainPhase`].
    phase: AtomicU8,
    changed: Notify,
    inside: AtomicUsize,
    abandoned: AtomicUsize,
    left: Notify,
}

impl DrainState {
    pub(crate) fn enter(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        if self.is_draining() {
            self.left.notify_waiters();
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.has_reached(DrainPhase::Draining)
    }

    /// Waits for a phase. Waiters wake in the order in which they began to wait, so that simulations repeat.
    pub(crate) async fn reached(&self, phase: DrainPhase) {
        loop {
            let changed = self.changed.notified();
            if self.has_reached(phase) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn has_reached(&self, phase: DrainPhase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    /// Enters a phase, which is never left for an earlier one.
    pub(crate) fn advance(&self, to: DrainPhase) {
        self.phase.fetch_max(to as u8, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Counts a handler that was dropped at the end of the grace.
    pub(crate) fn abandon(&self) {
        self.abandoned.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of calls in progress.
    pub(crate) fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    /// Returns the number of handlers dropped so far.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Waits until no call is in progress.
    pub(crate) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.inside() == 0 {
                return;
            }
            left.await;
        }
    }
}
