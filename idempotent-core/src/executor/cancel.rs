//! What a dropped run leaves behind.
use std::time::Duration;

use super::Executor;
use crate::clock::{before, later};
use crate::policy::Terms;
use crate::{Fencing, Held, Release, Verdict};

/// Frees the key of a run that is dropped midway, as far as that is safe. Stands before the claim is sent: a
/// drop while the answer is under way takes the claim back.
pub(super) struct OnDrop {
    armed: Option<(Executor, Held, Release)>,
    /// A release that takes longer than the lease is of no use.
    lease: Duration,
}

impl OnDrop {
    /// Nothing has run yet: the attempt is not counted.
    pub(super) fn new(executor: &Executor, held: &Held, terms: &Terms) -> Self {
        let release = terms.release(terms.undo(Verdict::Refund), "cancelled before it started");
        Self { armed: Some((executor.clone(), held.clone(), release)), lease: terms.lease }
    }

    /// From here on it is this grant that is given back, and no other of the same token.
    pub(super) fn granted(&mut self, fencing: Fencing) {
        if let Some((_, held, _)) = &mut self.armed {
            held.fencing = Some(fencing);
        }
    }

    /// From here on the effect is unknown: the key is left to its lease, unless the policy says otherwise.
    pub(super) fn started(&mut self, terms: &Terms) {
        match &mut self.armed {
            Some((.., release)) if terms.release_on_cancel => {
                *release = terms.release(terms.undo(Verdict::Vacate), "cancelled");
            }
            armed => *armed = None,
        }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        let Some((executor, held, release)) = self.armed.take() else { return };
        let lease = self.lease;
        // A drop cannot wait: hand it to the runtime, if there is one. If not, the lease runs out.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Whether it worked or not, there is nobody left to tell; the lease ends in any case.
                let clock = &*executor.0.clock;
                let _ = before(clock, later(clock.now(), lease), executor.0.store.release(&held, &release)).await;
                executor.0.waiters.wake(held.key.hash());
            });
        }
    }
}
