//! Shutting down: nothing new starts, what runs may finish, the rest is abandoned.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::Executor;
use crate::clock::{before, later};

#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    #[default]
    Open,
    Draining,
    Closed,
}

/// Counts who is inside, and says when to leave.
#[derive(Debug, Default)]
pub(super) struct Gate {
    phase: watch::Sender<Phase>,
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
        *self.phase.borrow() >= Phase::Draining
    }

    /// Ends when the phase has come.
    pub(super) async fn reached(&self, phase: Phase) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
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
        // Also with nobody listening yet: who comes later sees it.
        gate.phase.send_if_modified(|phase| {
            let opened = *phase == Phase::Open;
            *phase = (*phase).max(Phase::Draining);
            opened
        });
        let deadline = later(self.0.clock.now(), grace);
        if before(&*self.0.clock, deadline, gate.empty()).await.is_some() {
            return Drained { finished: running, abandoned: 0 };
        }
        let abandoned = gate.inside().min(running);
        gate.phase.send_replace(Phase::Closed);
        gate.empty().await;
        Drained { finished: running - abandoned, abandoned }
    }

    /// Whether [`drain`](Self::drain) was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.gate.is_draining()
    }
}
