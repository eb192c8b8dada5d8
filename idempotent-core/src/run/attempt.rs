//! A granted run, from its claim to its settlement.
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::prepared::Prepared;
use super::release::{known_steps, spared, sparing_steps};
use super::release_on_drop::ReleaseOnDrop;
use super::report::Report;
use crate::engine::{Engine, draining};
use crate::lease::RenewalGuard;
use crate::policy::{OnLeaseLost, ResolvedPolicy};
use crate::{Lease, Outcome, Rejection, Release, Store, Verdict};

/// A granted run: its lease, and the guard that releases the key if the run is dropped.
pub(crate) struct Attempt<'e> {
    pub(crate) engine: &'e Arc<Engine>,
    pub(crate) lease: Lease,
    pub(crate) prepared: Box<Prepared>,
    pub(crate) guard: ReleaseOnDrop<'e>,
    heartbeat: Option<RenewalGuard<'e>>,
    pub(crate) granted_at: Instant,
    /// The start of the settlement, from which `settle_timeout` counts.
    settles_from: Option<Instant>,
}

/// Why a handler is dropped.
#[derive(Clone, Copy)]
pub(crate) enum AbortReason {
    LeaseLost,
    Closed,
}

impl<'e> Attempt<'e> {
    pub(crate) fn new(
        engine: &'e Arc<Engine>,
        prepared: Box<Prepared>,
        lease: Lease,
        guard: ReleaseOnDrop<'e>,
        granted_at: Instant,
    ) -> Self {
        let heartbeat = Some(engine.renewer.add(&lease, granted_at));
        Self { engine, lease, prepared, guard, heartbeat, granted_at, settles_from: None }
    }

    pub(crate) fn terms(&self) -> &ResolvedPolicy {
        &self.prepared.terms
    }

    /// Where this run is settled.
    pub(crate) fn store(&self) -> &dyn Store {
        self.prepared.store(self.engine)
    }

    /// A grant that came too late to be used is to be given back.
    pub(crate) fn too_late(&self, now: Instant) -> Option<Rejection> {
        match () {
            () if self.engine.is_draining() && !self.prepared.inside => Some(draining()),
            () if self.lease.is_lost_at(now) => Some(Rejection::LeaseLost),
            () => None,
        }
    }

    /// Nothing ran: the attempt is not counted.
    pub(crate) async fn give_back(&mut self) {
        self.stop_heartbeat();
        let release = self.releasing(Verdict::Refund, "not started").await;
        // Whether or not it is confirmed, and not for long: the lease ends by itself.
        let until = self.engine.clock.now() + self.lease.length() / 10;
        let _ = self.engine.before(until, self.store().release(self.lease.held(), &release)).await;
        self.guard.disarm();
        self.tell_waiters();
    }

    pub(crate) fn start(&mut self, report: &mut Report<'_>) {
        self.guard.started(&self.prepared.terms);
        report.started();
    }

    pub(crate) fn end(&mut self, report: &mut Report<'_>, outcome: Outcome) {
        self.guard.disarm();
        report.end(outcome);
    }

    pub(crate) fn stop_heartbeat(&mut self) {
        self.heartbeat = None;
    }

    /// Stops the heartbeat and starts the settlement. A second step of the same settlement continues with the time that is left.
    pub(crate) fn begin_to_settle(&mut self) {
        self.stop_heartbeat();
        self.settles_from.get_or_insert_with(|| self.engine.clock.now());
    }

    /// Returns the start of the settlement, or `now` if the settlement starts with this step.
    pub(crate) fn settles_from(&self, now: Instant) -> Instant {
        self.settles_from.unwrap_or(now)
    }

    /// Ends when the lease is lost and the handler is not to go on without it; looks after the lease meanwhile.
    pub(crate) async fn lost(&self) {
        self.engine.renewer.watch_over(&self.lease).await;
        match self.terms().on_lease_lost {
            OnLeaseLost::Abort => {}
            OnLeaseLost::Finish => pending().await,
        }
    }

    /// The handler was dropped midway: its effect is unknown, the key is left to its lease.
    pub(crate) fn abandon(&mut self, why: AbortReason, report: &mut Report<'_>) -> Rejection {
        self.stop_heartbeat();
        match why {
            AbortReason::LeaseLost => {
                self.end(report, Outcome::LeaseLost);
                Rejection::LeaseLost
            }
            AbortReason::Closed => {
                self.engine.drain.abandon();
                self.end(report, Outcome::Abandoned);
                Rejection::Draining { retry_after: self.lease.remaining() }
            }
        }
    }

    /// Returns the deadline of a first try that starts at `now`: at most half the time that the call has left, so that there is
    /// time for another try.
    pub(crate) fn gives_up_at(&self, now: Instant) -> Instant {
        let half = self.answers_at(now).saturating_duration_since(now) / 2;
        try_until(now, self.insists_until(now)).min(now + half.max(Duration::from_millis(1)))
    }

    pub(crate) fn insists_until(&self, now: Instant) -> Instant {
        self.lease.guard().max(now + self.lease.length() / 10)
    }

    /// Returns the latest instant at which the call returns, settled or not.
    pub(crate) fn answers_at(&self, now: Instant) -> Instant {
        let (until, timeout) = (self.insists_until(now), self.terms().settle_timeout);
        if timeout.is_zero() { until } else { until.min(self.settles_from(now) + timeout.min(self.lease.length())) }
    }

    /// The release of a verdict, so that no steps are lost that another run is to replay.
    pub(crate) async fn releasing(&self, verdict: Verdict, error: &str) -> Release {
        let (release, limit) = (self.terms().release(verdict, error), self.terms().max_attempts() > 0);
        let (lease, store) = (&self.lease, &*self.engine.store);
        match known_steps(lease, limit) {
            // What costs nothing is not boxed.
            Some(false) => release,
            known => {
                let sparing = Box::pin(sparing_steps(store, lease.held(), known, release.clone(), limit));
                let now = self.engine.clock.now();
                let until = self.gives_up_at(now).min(now + lease.length() / 10);
                // A store that does not answer may hold steps, like one that answers with an error.
                self.engine.before(until, sparing).await.unwrap_or_else(|| spared(release, limit))
            }
        }
    }

    pub(crate) fn tell_waiters(&self) {
        self.engine.tell_waiters(self.lease.key());
    }

    pub(crate) fn retry_in(&self) -> Duration {
        self.engine.retry_in(self.terms(), self.lease.attempt())
    }

    pub(crate) fn is_last(&self) -> bool {
        let max = self.terms().max_attempts();
        max > 0 && self.lease.attempt() >= max
    }
}

/// Returns the deadline of one try: a third of the remaining time, at least 1 ms. A try that hangs on one connection leaves time
/// for another connection.
pub(crate) fn try_until(now: Instant, until: Instant) -> Instant {
    now + (until.saturating_duration_since(now) / 3).max(Duration::from_millis(1))
}
