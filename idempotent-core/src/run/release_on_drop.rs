//! What a dropped run leaves behind.
use std::sync::Arc;
use std::time::Duration;

use super::prepared::Prepared;
use super::release::{keeping_steps, release};
use crate::clock::{before, later};
use crate::engine::Engine;
use crate::policy::ResolvedPolicy;
use crate::transaction::OneRun;
use crate::{Fencing, Held, Store, Verdict};

/// Frees the key of a run that is dropped midway, as far as that is safe. Stands before the claim is sent: a
/// drop while the answer is under way takes the claim back.
pub(crate) struct ReleaseOnDrop<'e> {
    engine: &'e Arc<Engine>,
    pending: Option<PendingRelease>,
    /// A release that takes longer than the lease is of no use.
    lease: Duration,
    memory: Duration,
    /// Whether attempts are counted.
    counts_attempts: bool,
    transaction_store: Option<Arc<dyn OneRun>>,
}

struct PendingRelease {
    held: Held,
    verdict: Verdict,
    error: &'static str,
}

impl<'e> ReleaseOnDrop<'e> {
    /// Nothing has run yet: the attempt is not counted.
    pub(crate) fn new(engine: &'e Arc<Engine>, prepared: &Prepared) -> Self {
        let policy = &prepared.policy;
        // Whether there is something to remember the store knows: the claim may have taken over unheard.
        let pending = Some(PendingRelease {
            held: prepared.held(None),
            verdict: Verdict::Refund,
            error: "cancelled before it started",
        });
        let (lease, memory, counts_attempts) = (policy.lease, policy.memory, policy.max_attempts() > 0);
        Self { engine, pending, lease, memory, counts_attempts, transaction_store: prepared.transaction_store.clone() }
    }

    /// For a claim by the executor's own store, beside the transaction the call would run in.
    pub(crate) fn with_executor_store(mut self) -> Self {
        self.transaction_store = None;
        self
    }

    /// From here on it is this grant that is given back, and no other of the same token.
    pub(crate) fn granted(&mut self, fencing: Fencing) {
        if let Some(pending) = &mut self.pending {
            pending.held.fencing = Some(fencing);
        }
    }

    /// From here on the effect is unknown: the key is left to its lease, unless the policy says otherwise.
    pub(crate) fn started(&mut self, policy: &ResolvedPolicy) {
        match &mut self.pending {
            Some(pending) if policy.release_on_cancel => {
                (pending.verdict, pending.error) = (policy.vacate_or_delete(Verdict::Vacate), "cancelled");
            }
            pending => *pending = None,
        }
    }

    pub(crate) fn disarm(&mut self) {
        self.pending = None;
    }
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        let Some(PendingRelease { held, verdict, error }) = self.pending.take() else { return };
        let (engine, lease, counts_attempts, transaction_store) =
            (self.engine.clone(), self.lease, self.counts_attempts, self.transaction_store.take());
        let release = release(verdict, self.memory, error);
        // A drop cannot wait: hand it to the runtime, if there is one. If not, the lease runs out.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Whether it worked or not, there is nobody left to tell; the lease ends in any case.
                let clock = &*engine.clock;
                let store = transaction_store.as_deref().map_or(&*engine.store, |own| own as &dyn Store);
                let freed = async {
                    // Without a limit no run that never began deletes what another has left.
                    let known = (verdict == Verdict::Refund && !counts_attempts).then_some(false);
                    let release = keeping_steps(store, &held, known, release, counts_attempts).await;
                    store.release(&held, &release).await
                };
                let _ = before(clock, later(clock.now(), lease), freed).await;
                engine.waiters.wake(held.key.hash());
            });
        }
    }
}
