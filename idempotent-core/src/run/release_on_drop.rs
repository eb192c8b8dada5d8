//! The release of a key when its run is dropped.
use std::sync::Arc;

use super::prepared::Prepared;
use super::release::{keeping_steps, release};
use crate::clock::{before, later};
use crate::engine::Engine;
use crate::{ClaimHandle, FencingToken, OwnerToken, ReleaseKind};

/// A guard that releases the key of a run that is dropped midway, as far as that is safe. It is created before the
/// claim is sent: if the call is dropped before the answer arrives, the guard releases a key that may have been
/// granted.
pub(crate) struct ReleaseOnDrop<'e> {
    engine: &'e Arc<Engine>,
    pub(crate) prepared: Arc<Prepared>,
    /// The fencing number of the grant, once the claim is answered.
    fencing: Option<FencingToken>,
    /// The verdict and the error of the release, unless the guard is disarmed.
    pending: Option<(ReleaseKind, &'static str)>,
}

impl<'e> ReleaseOnDrop<'e> {
    /// Creates an armed guard. Until the handler starts, the release does not count the attempt.
    pub(crate) fn new(engine: &'e Arc<Engine>, prepared: Arc<Prepared>) -> Self {
        Self { engine, prepared, fencing: None, pending: Some((ReleaseKind::Refund, "cancelled before it started")) }
    }

    /// Changes the owner token to that of the next claim.
    pub(crate) fn claims_as(&mut self, owner: OwnerToken) {
        Arc::make_mut(&mut self.prepared).request.owner = owner;
    }

    /// Restricts the release to this grant, and excludes later grants of the same owner token.
    pub(crate) fn granted(&mut self, fencing: FencingToken) {
        self.fencing = Some(fencing);
    }

    /// Marks the handler as started. Its effect is unknown from here on, so the key is held until the lease expires,
    /// unless the policy sets `release_on_cancel`.
    pub(crate) fn started(&mut self) {
        let policy = &self.prepared.policy;
        let cancelled = || (policy.vacate_or_delete(ReleaseKind::Vacate), "cancelled");
        self.pending = self.pending.filter(|_| policy.release_on_cancel).map(|_| cancelled());
    }

    pub(crate) fn disarm(&mut self) {
        self.pending = None;
    }
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        let Some((verdict, error)) = self.pending.take() else { return };
        let (engine, prepared, fencing) = (self.engine.clone(), self.prepared.clone(), self.fencing);
        // A drop cannot wait, so a task sends the release. Without a runtime, the lease expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let (policy, store) = (&prepared.policy, prepared.store(&engine));
                let held = ClaimHandle { fencing, ..prepared.unanswered() };
                let counts_attempts = policy.max_attempts() > 0;
                // The result is ignored: the lease expires in any case.
                let clock = &*engine.clock;
                let freed = async {
                    // If attempts are unlimited, a run that never began must not delete the steps of an earlier run. Only the store
                    // knows whether there is a count to keep: the claim may have taken over without an answer.
                    let known = (verdict == ReleaseKind::Refund && !counts_attempts).then_some(false);
                    let release = release(verdict, policy.retain_failures, error);
                    let release = keeping_steps(store, &held, known, release, counts_attempts).await;
                    store.release(&held, &release).await
                };
                let _ = before(clock, later(clock.now(), policy.lease), freed).await;
                engine.forget_answer(&held.key);
                engine.waiters.wake(held.key.hash());
            });
        }
    }
}
