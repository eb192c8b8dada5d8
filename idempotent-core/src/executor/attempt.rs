//! A run that was granted: proceed under the lease.
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Instant;

use futures_util::FutureExt;

use super::cancel::OnDrop;
use super::heartbeat::Ticket;
use super::judge::judge;
use super::prepare::Prepared;
use super::report::Report;
use super::{Executor, Handler};
use crate::clock::unless;
use crate::context::Frame;
use crate::outcome::Slot;
use crate::policy::{OnLeaseLost, Terms};
use crate::{Codec, Lease, Outcome, Rejection, Replies, Store, Verdict};

pub(super) struct Attempt<'e> {
    pub(super) executor: &'e Executor,
    pub(super) lease: Lease,
    pub(super) prepared: Box<Prepared>,
    pub(super) guard: OnDrop<'e>,
    heartbeat: Option<Ticket<'e>>,
    granted_at: Instant,
    /// The start of the settlement, from which `settle_timeout` counts.
    settles_from: Option<Instant>,
}

/// Why a handler is dropped.
#[derive(Clone, Copy)]
pub(super) enum Dropped {
    LeaseLost,
    Closed,
}

impl<'e> Attempt<'e> {
    pub(super) fn new(
        executor: &'e Executor,
        prepared: Box<Prepared>,
        lease: Lease,
        guard: OnDrop<'e>,
        granted_at: Instant,
    ) -> Self {
        let heartbeat = Some(executor.0.wheel.add(&lease, granted_at));
        Self { executor, lease, prepared, guard, heartbeat, granted_at, settles_from: None }
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.prepared.terms
    }

    /// Where this run is settled.
    pub(super) fn store(&self) -> &dyn Store {
        self.prepared.store(self.executor)
    }

    /// Runs the handler under the lease and puts the run down by what it answers.
    pub(super) async fn proceed<P, C, R, F, Fut>(
        mut self,
        frame: Frame,
        report: &mut Report<'_>,
        handler: Handler<P, C, R, F>,
    ) -> P::Output<R>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        let (run, handler) = handler.take();
        // Only pure steps lie between the reading of the clock and this.
        if let Some(rejection) = self.too_late(self.granted_at) {
            Box::pin(self.give_back()).await;
            return handler.come_back_later(report, rejection);
        }
        self.start(report);
        let inner = Slot::default();
        let around = Frame { lease: Some(self.lease.clone()), slot: Some(inner.clone()), ..frame };
        // Boxed: the handler's state is kept once, and only by calls that do run it. The answer is taken apart
        // under the lease too, since it may be a stream.
        let running = around.enter(Box::pin(async { P::split(run().await).await }));
        let ended = match unless(AssertUnwindSafe(running).catch_unwind(), || self.dropped()).await {
            Ok(ended) => ended,
            Err(why) => return handler.reject(self.abandon(why, report)),
        };
        match ended.and_then(|reply| judge(reply, &handler, self.terms(), report)) {
            Ok(judged) => Box::pin(self.put_down(report, judged, None, inner.take_outcome(), &handler)).await.output,
            Err(panic) => {
                Box::pin(self.panicked(report)).await;
                resume_unwind(panic)
            }
        }
    }

    /// A grant that came too late to be used is to be given back.
    pub(super) fn too_late(&self, now: Instant) -> Option<Rejection> {
        match () {
            () if self.executor.is_draining() && !self.prepared.inside => Some(self.executor.draining()),
            () if self.lease.is_lost_at(now) => Some(Rejection::LeaseLost),
            () => None,
        }
    }

    /// Nothing ran: the attempt is not counted.
    pub(super) async fn give_back(&mut self) {
        self.stop_heartbeat();
        let release = self.releasing(Verdict::Refund, "not started").await;
        // Whether or not it is confirmed, and not for long: the lease ends by itself.
        let until = self.executor.0.clock.now() + self.lease.length() / 10;
        let _ = self.executor.before(until, self.store().release(self.lease.held(), &release)).await;
        self.guard.disarm();
        self.tell_waiters();
    }

    pub(super) fn start(&mut self, report: &mut Report<'_>) {
        self.guard.started(&self.prepared.terms);
        report.started();
    }

    pub(super) fn end(&mut self, report: &mut Report<'_>, outcome: Outcome) {
        self.guard.disarm();
        report.end(outcome);
    }

    pub(super) fn stop_heartbeat(&mut self) {
        self.heartbeat = None;
    }

    /// Stops the heartbeat and starts the settlement. A second step of the same settlement continues with the time that is left.
    pub(super) fn begin_to_settle(&mut self) {
        self.stop_heartbeat();
        self.settles_from.get_or_insert_with(|| self.executor.0.clock.now());
    }

    /// Returns the start of the settlement, or `now` if the settlement starts with this step.
    pub(super) fn settles_from(&self, now: Instant) -> Instant {
        self.settles_from.unwrap_or(now)
    }

    /// Ends when the handler must be dropped.
    async fn dropped(&self) -> Dropped {
        tokio::select! {
            biased;
            () = self.lost() => Dropped::LeaseLost,
            () = self.executor.closed() => Dropped::Closed,
        }
    }

    /// Ends when the lease is lost and the handler is not to go on without it; looks after the lease meanwhile.
    pub(super) async fn lost(&self) {
        self.executor.0.wheel.watch_over(&self.lease).await;
        match self.terms().on_lease_lost {
            OnLeaseLost::Abort => {}
            OnLeaseLost::Finish => pending().await,
        }
    }

    /// The handler was dropped midway: its effect is unknown, the key is left to its lease.
    pub(super) fn abandon(&mut self, why: Dropped, report: &mut Report<'_>) -> Rejection {
        self.stop_heartbeat();
        match why {
            Dropped::LeaseLost => {
                self.end(report, Outcome::LeaseLost);
                Rejection::LeaseLost
            }
            Dropped::Closed => {
                self.executor.0.gate.abandon();
                self.end(report, Outcome::Abandoned);
                Rejection::Draining { retry_after: self.lease.remaining() }
            }
        }
    }
}
