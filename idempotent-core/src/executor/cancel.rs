//! What a dropped run leaves behind.
use std::sync::Arc;
use std::time::Duration;

use super::Executor;
use super::prepare::Prepared;
use super::take_back::sparing_steps;
use crate::clock::{before, later};
use crate::policy::Terms;
use crate::transaction::OneRun;
use crate::{Fencing, Held, Store, Verdict};

/// Frees the key of a run that is dropped midway, as far as that is safe. Stands before the claim is sent: a
/// drop while the answer is under way takes the claim back.
pub(super) struct OnDrop<'e> {
    executor: &'e Executor,
    armed: Option<Armed>,
    /// A release that takes longer than the lease is of no use.
    lease: Duration,
    memory: Duration,
    /// Whether attempts are counted.
    limit: bool,
    via: Option<Arc<dyn OneRun>>,
}

struct Armed {
    held: Held,
    verdict: Verdict,
    error: &'static str,
}

impl<'e> OnDrop<'e> {
    /// Nothing has run yet: the attempt is not counted.
    pub(super) fn new(executor: &'e Executor, prepared: &Prepared) -> Self {
        let terms = &prepared.terms;
        // Whether there is something to remember the store knows: the claim may have taken over unheard.
        let armed =
            Some(Armed { held: prepared.held(None), verdict: Verdict::Refund, error: "cancelled before it started" });
        let (lease, memory, limit) = (terms.lease, terms.memory, terms.max_attempts() > 0);
        Self { executor, armed, lease, memory, limit, via: prepared.via.clone() }
    }

    /// For a claim by the executor's own store, beside the transaction the call would run in.
    pub(super) fn past_transaction(mut self) -> Self {
        self.via = None;
        self
    }

    /// From here on it is this grant that is given back, and no other of the same token.
    pub(super) fn granted(&mut self, fencing: Fencing) {
        if let Some(armed) = &mut self.armed {
            armed.held.fencing = Some(fencing);
        }
    }

    /// From here on the effect is unknown: the key is left to its lease, unless the policy says otherwise.
    pub(super) fn started(&mut self, terms: &Terms) {
        match &mut self.armed {
            Some(armed) if terms.release_on_cancel => {
                (armed.verdict, armed.error) = (terms.undo(Verdict::Vacate), "cancelled");
            }
            armed => *armed = None,
        }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        let Some(Armed { held, verdict, error }) = self.armed.take() else { return };
        let (executor, lease, limit, via) = (self.executor.clone(), self.lease, self.limit, self.via.take());
        let release = super::settle::release(verdict, self.memory, error);
        // A drop cannot wait: hand it to the runtime, if there is one. If not, the lease runs out.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Whether it worked or not, there is nobody left to tell; the lease ends in any case.
                let clock = &*executor.0.clock;
                let store = via.as_deref().map_or(&*executor.0.store, |own| own as &dyn Store);
                let freed = async {
                    // Without a limit no run that never began deletes what another has left.
                    let known = (verdict == Verdict::Refund && !limit).then_some(false);
                    let release = sparing_steps(store, &held, known, release, limit).await;
                    store.release(&held, &release).await
                };
                let _ = before(clock, later(clock.now(), lease), freed).await;
                executor.0.waiters.wake(held.key.hash());
            });
        }
    }
}
