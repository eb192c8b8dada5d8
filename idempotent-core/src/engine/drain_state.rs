//! The progress of a drain, and the number of calls in progress.
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A phase of a drain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DrainPhase {
    /// New calls are rejected. Before this phase, no drain has begun.
    Draining = 1,
    /// Running handlers are dropped.
    GraceEnded = 2,
}

/// The phase of a drain and the number of calls in progress.
///
/// Aligned to its own cache lines, like the counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct DrainState {
    /// The current [`DrainPhase`], or 0 before a drain.
    phase: AtomicU8,
    phase_changed: Notify,
    in_progress: AtomicUsize,
    abandoned: AtomicUsize,
    call_ended: Notify,
}

impl DrainState {
    pub(crate) fn begin_call(&self) {
        self.in_progress.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_call(&self) {
        self.in_progress.fetch_sub(1, Ordering::SeqCst);
        if self.is_draining() {
            self.call_ended.notify_waiters();
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.has_reached(DrainPhase::Draining)
    }

    /// Waits for a phase. Waiters wake in the order in which they began to wait, so that simulations are reproducible.
    pub(crate) async fn wait_for(&self, phase: DrainPhase) {
        loop {
            let phase_changed = self.phase_changed.notified();
            if self.has_reached(phase) {
                return;
            }
            phase_changed.await;
        }
    }

    pub(crate) fn has_reached(&self, phase: DrainPhase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    /// Enters a phase. The phase never goes back.
    pub(crate) fn advance(&self, to: DrainPhase) {
        self.phase.fetch_max(to as u8, Ordering::SeqCst);
        self.phase_changed.notify_waiters();
    }

    /// Counts a handler that was dropped after the grace.
    pub(crate) fn count_abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of calls in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress.load(Ordering::SeqCst)
    }

    /// Returns the number of handlers dropped so far.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Waits until no call is in progress.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let call_ended = self.call_ended.notified();
            if self.in_progress() == 0 {
                return;
            }
            call_ended.await;
        }
    }
}
