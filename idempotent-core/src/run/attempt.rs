//! A granted run, from its claim to its settlement.
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::prepared::Prepared;
use super::release::{keeping_record, keeping_steps, known_steps};
use super::release_on_drop::ReleaseOnDrop;
use super::report::Report;
use crate::engine::{Engine, HeldKey, draining_rejection};
use crate::lease::RenewalGuard;
use crate::policy::{OnLeaseLost, ResolvedPolicy};
use crate::{Lease, Outcome, Rejection, Release, ReleaseKind, Store};

/// A granted run: its lease, and the guard that releases the key if the run is dropped.
pub(crate) struct Attempt<'e> {
    pub(crate) engine: &'e Arc<Engine>,
    pub(crate) lease: Lease,
    /// Defers duplicates without a claim, until the settlement begins. Dropped before `guard`, whose release wakes them.
    held_key: Option<HeldKey>,
    pub(crate) guard: ReleaseOnDrop<'e>,
    renewal: Option<RenewalGuard<'e>>,
    pub(crate) granted_at: Instant,
    /// The start of the settlement, from which `settle_timeout` counts.
    pub(super) settlement_start: OnceLock<Instant>,
}

/// The reason for which a handler is dropped.
#[derive(Clone, Copy)]
pub(crate) enum AbortReason {
    LeaseLost,
    GraceEnded,
}

impl<'e> Attempt<'e> {
    pub(crate) fn new(engine: &'e Arc<Engine>, lease: Lease, guard: ReleaseOnDrop<'e>, granted_at: Instant) -> Self {
        let renewal = Some(engine.renewer.add(&lease, granted_at));
        let prepared = &guard.prepared;
        let held_key = prepared.in_flight_keys(engine).map(|keys| keys.hold(&lease, prepared.request.fingerprint));
        Self { engine, lease, guard, renewal, held_key, granted_at, settlement_start: OnceLock::new() }
    }

    pub(crate) fn prepared(&self) -> &Prepared {
        &self.guard.prepared
    }

    pub(crate) fn policy(&self) -> &ResolvedPolicy {
        &self.prepared().policy
    }

    /// Returns the store that settles this run.
    pub(crate) fn store(&self) -> &dyn Store {
        self.prepared().store(self.engine)
    }

    /// Returns the rejection if the grant came too late to start the handler.
    pub(crate) fn late_rejection(&self, now: Instant) -> Option<Rejection> {
        match () {
            () if self.engine.is_draining() && !self.prepared().is_nested => Some(draining_rejection()),
            () if self.lease.is_lost_at(now) => Some(Rejection::LeaseLost),
            () => None,
        }
    }

    /// Releases the key of a run that has not started; the attempt is not counted.
    pub(crate) async fn refund(&mut self) {
        self.stop_renewal();
        let release = self.prepare_release(ReleaseKind::Refund, "not started").await;
        // A missing confirmation only delays the next run: the lease expires.
        let until = self.engine.clock.now() + self.lease.length() / 10;
        let _ = self.engine.before(|| until, self.store().release(self.lease.settling_handle(), &release)).await;
        self.guard.disarm();
        self.wake_waiters();
    }

    pub(crate) fn start(&mut self, report: &mut Report<'_>) {
        self.guard.started();
        report.started();
    }

    pub(crate) fn end(&mut self, report: &mut Report<'_>, outcome: Outcome) {
        self.guard.disarm();
        report.end(outcome);
    }

    pub(crate) fn stop_renewal(&mut self) {
        self.renewal = None;
        // Ended before the settlement is sent. A duplicate that waits for the settlement could miss it otherwise.
        self.held_key = None;
    }

    /// Stops the renewal and starts the settlement. A second step of the same settlement uses the remaining time.
    pub(crate) fn begin_settlement(&mut self) {
        self.stop_renewal();
        self.settlement_start.get_or_init(|| self.engine.clock.now());
    }

    /// Returns the start of the settlement, or `now` if the settlement starts with this step.
    pub(crate) fn settlement_start(&self, now: Instant) -> Instant {
        self.settlement_start.get().copied().unwrap_or(now)
    }

    /// Waits until the lease is lost and the policy aborts the handler for that. Loses the lease at its guard.
    pub(crate) async fn lease_lost(&self) {
        self.engine.renewer.watch_lease(&self.lease).await;
        match self.policy().on_lease_lost {
            OnLeaseLost::Abort => {}
            OnLeaseLost::Finish => pending().await,
        }
    }

    /// Reports a handler that was dropped: its effect is unknown, and the key is held until the lease expires.
    pub(crate) fn abandon(&mut self, why: AbortReason, report: &mut Report<'_>) -> Rejection {
        self.stop_renewal();
        match why {
            AbortReason::LeaseLost => {
                self.end(report, Outcome::LeaseLost);
                Rejection::LeaseLost
            }
            AbortReason::GraceEnded => {
                self.engine.drain.count_abandoned();
                self.end(report, Outcome::Abandoned);
                Rejection::Draining { retry_after: self.lease.remaining() }
            }
        }
    }

    /// Returns the deadline of a first try that starts at `now`: at most half of the time that the call has left, so
    /// that there is time for another try.
    pub(crate) fn first_try_deadline(&self, now: Instant) -> Instant {
        let half = self.return_deadline(now).saturating_duration_since(now) / 2;
        try_deadline(now, self.retry_deadline(now)).min(now + half.max(Duration::from_millis(1)))
    }

    pub(crate) fn retry_deadline(&self, now: Instant) -> Instant {
        self.lease.guard().max(now + self.lease.length() / 10)
    }

    /// Returns the latest instant at which the call returns, settled or not.
    pub(crate) fn return_deadline(&self, now: Instant) -> Instant {
        let (until, timeout) = (self.retry_deadline(now), self.policy().settle_timeout);
        if timeout.is_zero() { until } else { until.min(self.settlement_start(now) + timeout.min(self.lease.length())) }
    }

    /// Builds the release for a verdict, and keeps the record if a later run replays its steps.
    pub(crate) async fn prepare_release(&self, verdict: ReleaseKind, error: &str) -> Release {
        let (release, counts_attempts) = (self.policy().release(verdict, error), self.policy().max_attempts() > 0);
        let (lease, store) = (&self.lease, &*self.engine.store);
        match known_steps(lease, counts_attempts) {
            // The common case needs no box.
            Some(false) => release,
            known => {
                let sparing = Box::pin(keeping_steps(store, lease.held(), known, release.clone(), counts_attempts));
                let now = self.engine.clock.now();
                let until = self.first_try_deadline(now).min(now + lease.length() / 10);
                // The store may hold steps if it does not answer, as if it answers with an error.
                self.engine.before(|| until, sparing).await.unwrap_or_else(|| keeping_record(release, counts_attempts))
            }
        }
    }

    pub(crate) fn wake_waiters(&self) {
        self.engine.wake_waiters(self.lease.key());
    }

    pub(crate) fn retry_delay(&self) -> Duration {
        self.engine.retry_delay(self.policy(), self.lease.attempt())
    }

    pub(crate) fn is_last_attempt(&self) -> bool {
        let max = self.policy().max_attempts();
        max > 0 && self.lease.attempt() >= max
    }
}

/// Returns the deadline of one try: a third of the remaining time, at least 1 ms. A try that hangs on one connection
/// leaves time for another connection.
pub(crate) fn try_deadline(now: Instant, until: Instant) -> Instant {
    now + (until.saturating_duration_since(now) / 3).max(Duration::from_millis(1))
}
