//! Shutting down: nothing new starts, what runs may finish, the rest is abandoned.
use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Executor;
use crate::clock::{before, later, pause, unless};

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// Nothing new starts. Before this the gate is open.
    Draining = 1,
    /// Running handlers are dropped.
    Closed = 2,
}

/// How long a settling step may take once a drain's grace is over.
const AFTER_CLOSE: Duration = Duration::from_secs(1);

/// Counts who is inside, and says when to leave.
///
/// On cache lines of its own, as the counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Gate {
    /// A [`Phase`].
    phase: AtomicU8,
    changed: Notify,
    inside: AtomicUsize,
    abandoned: AtomicUsize,
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

    pub(super) fn has_reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    /// There is no way back.
    fn advance(&self, to: Phase) {
        self.phase.fetch_max(to as u8, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// A handler was dropped because the gate closed.
    pub(super) fn abandon(&self) {
        self.abandoned.fetch_add(1, Ordering::SeqCst);
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
    /// whose handler had not started is given back, its attempt not counted. Runs in flight go on, with the runs
    /// inside them, and their leases are renewed; those that have not ended after `grace` are dropped at their next
    /// await, and a store that does not answer is given a second more.
    ///
    /// Stop pulling deliveries first. Ends when the last run has ended or was dropped.
    ///
    /// # Cancellation
    /// Dropping it leaves the executor draining, without an end of the grace.
    pub async fn drain(&self, grace: Duration) -> Drained {
        let gate = &self.0.gate;
        let (running, before_it) = (gate.inside(), gate.abandoned.load(Ordering::SeqCst));
        gate.advance(Phase::Draining);
        let deadline = later(self.0.clock.now(), grace);
        if before(&*self.0.clock, deadline, gate.empty()).await.is_some() {
            // Perhaps by another drain with a shorter grace.
            let abandoned = gate.abandoned.load(Ordering::SeqCst).saturating_sub(before_it).min(running);
            return Drained { finished: running - abandoned, abandoned };
        }
        gate.advance(Phase::Closed);
        gate.empty().await;
        let abandoned = gate.abandoned.load(Ordering::SeqCst).saturating_sub(before_it).min(running);
        Drained { finished: running - abandoned, abandoned }
    }

    /// `future`, or `None` once `until` or the end of a drain has come: a second behind its grace at the latest, so
    /// that what is almost done is not cut off and a store that hangs does not keep the process.
    pub(super) async fn before<F: Future>(&self, until: Instant, future: F) -> Option<F::Output> {
        let over = || async {
            let drained = async {
                self.closed().await;
                pause(&*self.0.clock, AFTER_CLOSE).await;
            };
            tokio::select! {
                biased;
                () = self.0.clock.sleep_until(until) => {}
                () = drained => {}
            }
        };
        unless(future, over).await.ok()
    }

    /// Ends when running handlers are to be dropped.
    pub(super) async fn closed(&self) {
        self.0.gate.reached(Phase::Closed).await;
    }

    /// Whether [`drain`](Self::drain) was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.gate.is_draining()
    }
}
