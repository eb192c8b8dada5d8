//! The release of a key when its run is dropped.
use std::sync::Arc;
use std::time::Duration;

use super::prepared::Prepared;
use super::release::{keeping_steps, release};
use crate::clock::{before, later};
use crate::engine::Engine;
use crate::policy::ResolvedPolicy;
use crate::transaction::TransactionalRun;
use crate::{ClaimHandle, FencingToken, OwnerToken, ReleaseKind, Store};

/// A guard that releases the key of a run that is dropped midway, as far as that is safe. It is created before the
/// claim is sent: if the call is dropped before the answer arrives, the guard releases a key that may have been
/// granted.
pub(crate) struct ReleaseOnDrop<'e> {
    engine: &'e Arc<Engine>,
    pending: Option<PendingRelease>,
    /// The time limit of the release, after which the lease has expired.
    lease: Duration,
    retention: Duration,
    /// True if the policy limits attempts.
    counts_attempts: bool,
    transaction_store: Option<Arc<dyn TransactionalRun>>,
}

struct PendingRelease {
    held: ClaimHandle,
    verdict: ReleaseKind,
    error: &'static str,
}

impl<'e> ReleaseOnDrop<'e> {
    /// Creates an armed guard. Until the handler starts, the release does not count the attempt.
    pub(crate) fn new(engine: &'e Arc<Engine>, prepared: &Prepared) -> Self {
        let policy = &prepared.policy;
        // Only the store knows whether there is a count to keep: the claim may have taken over without an answer.
        let pending = Some(PendingRelease {
            held: prepared.unanswered(),
            verdict: ReleaseKind::Refund,
            error: "cancelled before it started",
        });
        let (lease, retention, counts_attempts) = (policy.lease, policy.retain_failures, policy.max_attempts() > 0);
        Self {
            engine,
            pending,
            lease,
            retention,
            counts_attempts,
            transaction_store: prepared.transaction_store.clone(),
        }
    }

    /// Releases by the executor's store instead of the store of the call's transaction.
    pub(crate) fn with_executor_store(mut self) -> Self {
        self.transaction_store = None;
        self
    }

    /// Changes the owner token to that of the next claim.
    pub(crate) fn claims_as(&mut self, owner: OwnerToken) {
        if let Some(pending) = &mut self.pending {
            pending.held.owner = owner;
        }
    }

    /// Restricts the release to this grant, and excludes later grants of the same owner token.
    pub(crate) fn granted(&mut self, fencing: FencingToken) {
        if let Some(pending) = &mut self.pending {
            pending.held.fencing = Some(fencing);
        }
    }

    /// Marks the handler as started. Its effect is unknown from here on, so the key is held until the lease expires,
    /// unless the policy sets `release_on_cancel`.
    pub(crate) fn started(&mut self, policy: &ResolvedPolicy) {
        match &mut self.pending {
            Some(pending) if policy.release_on_cancel => {
                (pending.verdict, pending.error) = (policy.vacate_or_delete(ReleaseKind::Vacate), "cancelled");
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
        let release = release(verdict, self.retention, error);
        // A drop cannot wait, so a task sends the release. Without a runtime, the lease expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The result is ignored: the lease expires in any case.
                let clock = &*engine.clock;
                let store = transaction_store.as_deref().map_or(&*engine.store, |own| own as &dyn Store);
                let freed = async {
                    // If attempts are unlimited, a run that never began must not delete the steps of an earlier run.
                    let known = (verdict == ReleaseKind::Refund && !counts_attempts).then_some(false);
                    let release = keeping_steps(store, &held, known, release, counts_attempts).await;
                    store.release(&held, &release).await
                };
                let _ = before(clock, later(clock.now(), lease), freed).await;
                engine.forget_answer(&held.key);
                engine.waiters.wake(held.key.hash());
            });
        }
    }
}
