//! Shutting down: nothing new starts, what runs may finish, the rest is abandoned.
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::Executor;
use crate::clock::{before, later};

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// Nothing new starts. Before this the gate is open.
    Draining = 1,
    /// Running handlers are dropped.
    Closed = 2,
}

/// Counts who is inside, and says when to leave.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// A [`Phase`].
    phase: AtomicU8,
    changed: Notify,
    inside: AtomicUsize,
    left: Notify,
}

impl Gate {
    pub(super) fn enter(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        if self.is_draining() {
            self.left.notify_waiters();
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.has_reached(Phase::Draining)
    }

    /// Ends when the phase has come. Wakes in the order of waiting, so that a simulated world repeats.
    pub(super) async fn reached(&self, phase: Phase) {
        loop {
            let changed = self.changed.notified();
            if self.has_reached(phase) {
                return;
            }
            changed.await;
        }
    }

    fn has_reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    /// There is no way back.
    fn advance(&self, to: Phase) {
        self.phase.fetch_max(to as u8, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.inside() == 0 {
                return;
            }
            left.await;
        }
    }
}

/// What became of the runs in flight when draining began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// Ended by themselves within the grace; calls refused meanwhile do not count.
    pub finished: usize,
    /// Handlers dropped at the end of the grace. Their effect is unknown: their keys are left to their leases,
    /// their deliveries end as `abandoned` and must be delivered again.
    pub abandoned: usize,
}

impl Executor {
    /// Graceful shutdown, for good. From here on a call is answered `Draining`, and a claim that was granted but
    /// whose handler had not started is given back, its attempt not counted. Runs in flight go on, their leases
    /// are renewed; those that have not ended after `grace` are dropped at their next await.
    ///
    /// Stop pulling deliveries first. Ends when the last run has ended or was dropped.
    ///
    /// # Cancellation
    /// Dropping it leaves the executor draining, without an end of the grace.
    pub async fn drain(&self, grace: Duration) -> Drained {
        let gate = &self.0.gate;
        let running = gate.inside();
        gate.advance(Phase::Draining);
        let deadline = later(self.0.clock.now(), grace);
        if before(&*self.0.clock, deadline, gate.empty()).await.is_some() {
            return Drained { finished: running, abandoned: 0 };
        }
        let abandoned = gate.inside().min(running);
        gate.advance(Phase::Closed);
        gate.empty().await;
        Drained { finished: running - abandoned, abandoned }
    }

    /// Whether [`drain`](Self::drain) was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.gate.is_draining()
    }
}
