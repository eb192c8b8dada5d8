//! A run that was granted: proceed, then flip the marker or delete it.
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::cancel::OnDrop;
use super::heartbeat::Ticket;
use super::report::Report;
use super::{Executor, Handler};
use crate::backoff::delay;
use crate::clock::{before, pause};
use crate::context::Frame;
use crate::outcome::Slot;
use crate::policy::{OnLeaseLost, Terms};
use crate::{
    Codec, Completion, Event, Lease, Outcome, Rejection, Release, Replies, Settled, Split, StoreError, StoreErrorKind,
    Verdict,
};

pub(super) struct Attempt {
    pub(super) executor: Executor,
    pub(super) lease: Lease,
    pub(super) terms: Terms,
    guard: OnDrop,
    heartbeat: Option<Ticket>,
}

/// What a run came to.
pub(super) struct PutDown<O> {
    pub(super) output: O,
    pub(super) outcome: Outcome,
    /// The bytes a duplicate gets.
    pub(super) kept: Option<Arc<[u8]>>,
}

/// Why a handler is dropped.
enum Dropped {
    LeaseLost,
    Closed,
}

impl Attempt {
    pub(super) fn new(executor: &Executor, lease: Lease, terms: Terms, guard: OnDrop) -> Self {
        let heartbeat = Some(executor.0.wheel.add(lease.clone()));
        Self { executor: executor.clone(), lease, terms, guard, heartbeat }
    }

    /// Runs the handler under the lease and puts the run down by what it answers.
    pub(super) async fn proceed<P, C, R, F, Fut>(
        mut self: Box<Self>,
        frame: Frame,
        mut report: Report,
        handler: Handler<P, C, R, F>,
    ) -> P::Output<R>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        let (run, handler) = handler.take();
        if let Some(rejection) = self.too_late().await {
            return handler.come_back_later(report, rejection);
        }
        self.start(&mut report);
        let inner = Slot::default();
        let around = Frame { lease: Some(self.lease.clone()), slot: Some(inner.clone()), ..frame };
        // Boxed: the handler's state is kept once, and only by calls that do run it. The answer is taken apart
        // under the lease too, since it may be a stream.
        let running = AssertUnwindSafe(around.enter(Box::pin(async { P::split(run().await).await }))).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = running => ended,
            why = self.dropped() => return self.abandon(why, report, &handler),
        };
        let reply = match ended {
            Ok(reply) => reply,
            Err(panic) => {
                let outcome = self.delete(&report, false, "the handler panicked", None).await;
                self.end(report, outcome);
                resume_unwind(panic)
            }
        };
        self.put_down(report, reply, inner.take(), &handler).await.output
    }

    /// Settles the run by what its handler answered.
    pub(super) async fn put_down<P, C, R>(
        &mut self,
        report: Report,
        reply: Split<P::Value, P::Failure>,
        inner: Option<Outcome>,
        rules: &Handler<P, C, R, ()>,
    ) -> PutDown<P::Output<R>>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
    {
        let (output, outcome) = match reply {
            Split::Value(value) if !(rules.failed_if)(&value) => {
                // The work is done: that is recorded even if its value cannot be kept.
                let kept = kept::<P, C, R>(&value, &self.terms, &report);
                let flipped = self.flip(&report, kept.clone()).await;
                let (output, outcome) = match flipped {
                    Ok(()) => (P::value(value), Outcome::Ran),
                    Err(rejection) => {
                        let outcome = Outcome::of(&rejection);
                        (rules.reject(rejection), outcome)
                    }
                };
                self.end(report, outcome.clone());
                return PutDown { output, outcome, kept };
            }
            Split::Value(value) => (P::value(value), self.delete(&report, false, "failed by its value", inner).await),
            Split::Transient(failure) => {
                let permanent = (rules.permanent)(&failure);
                let outcome = self.delete(&report, permanent, &P::describe(&failure), inner).await;
                (P::failure(failure), outcome)
            }
            Split::Permanent(failure) => {
                let outcome = self.delete(&report, true, &P::describe(&failure), None).await;
                (P::failure(failure), outcome)
            }
        };
        self.end(report, outcome.clone());
        PutDown { output, outcome, kept: None }
    }

    /// A grant that came too late to be used is given back, its attempt not counted.
    pub(super) async fn too_late(&mut self) -> Option<Rejection> {
        let rejection = match () {
            () if self.executor.is_draining() => self.executor.draining(),
            () if self.lease.is_lost() => Rejection::LeaseLost,
            () => return None,
        };
        self.heartbeat = None;
        let release = self.terms.release(self.terms.undo(Verdict::Refund), "not started");
        // Whether or not it is confirmed, and not for long: nothing ran, and the lease ends by itself.
        let clock = &*self.executor.0.clock;
        let until = clock.now() + self.lease.length() / 10;
        let _ = before(clock, until, self.executor.0.store.release(self.lease.held(), &release)).await;
        self.guard.disarm();
        self.executor.0.waiters.wake(self.lease.key().hash());
        Some(rejection)
    }

    pub(super) fn start(&mut self, report: &mut Report) {
        self.guard.started(&self.terms);
        report.started(self.terms.release_on_cancel);
    }

    pub(super) fn end(&mut self, report: Report, outcome: Outcome) {
        self.guard.disarm();
        report.end(outcome);
    }

    /// Ends when the handler must be dropped; looks after an orphaned heartbeat meanwhile.
    async fn dropped(&self) -> Dropped {
        let lost = async {
            match self.terms.on_lease_lost {
                OnLeaseLost::Abort => self.lease.lost().await,
                OnLeaseLost::Finish => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = lost => Dropped::LeaseLost,
            () = self.executor.closed() => Dropped::Closed,
            () = self.executor.0.wheel.stand_by() => Dropped::Closed, // never ends
        }
    }

    /// The handler was dropped midway: its effect is unknown, the key is left to its lease.
    fn abandon<P: Replies<R>, C, R>(
        &mut self,
        why: Dropped,
        report: Report,
        handler: &Handler<P, C, R, ()>,
    ) -> P::Output<R> {
        self.guard.disarm();
        match why {
            Dropped::LeaseLost => handler.come_back_later(report, Rejection::LeaseLost),
            Dropped::Closed => {
                report.end(Outcome::Abandoned);
                handler.reject(Rejection::Draining { retry_after: self.lease.remaining() })
            }
        }
    }

    /// Consuming → consumed, by the same token until the guard as it stood when the handler ended: the heartbeat
    /// stops here, so that refused completions cannot prolong the lease for ever. A handler that finished late
    /// still gets a try: the token guards it, and nobody may have taken over.
    pub(super) async fn flip(&mut self, report: &Report, value: Option<Arc<[u8]>>) -> Result<(), Rejection> {
        self.heartbeat = None;
        let done = Completion { value, retain: self.terms.retain };
        let settled =
            self.insist(report, "complete", || self.executor.0.store.complete(self.lease.held(), &done)).await;
        self.settled();
        match settled {
            Ok(Settled::Done) => Ok(()),
            Ok(Settled::Lost { .. }) => Err(Rejection::LeaseLost),
            Err(cause) => Err(Rejection::Unrecorded { cause: Some(cause) }),
        }
    }

    /// Takes the marker back, as far as the attempts allow. A store that does not confirm only delays the retry:
    /// the lease ends by itself.
    pub(super) async fn delete(
        &mut self,
        report: &Report,
        permanent: bool,
        error: &str,
        inner: Option<Outcome>,
    ) -> Outcome {
        self.heartbeat = None;
        let max = self.terms.max_attempts();
        let last = max > 0 && self.lease.attempt() >= max;
        let deferred = inner.filter(Outcome::is_deferral);
        let (verdict, outcome) = match deferred {
            _ if permanent => (Verdict::Fail, Outcome::Failed),
            Some(inner) => (self.terms.undo(Verdict::Refund), inner),
            None if last => (Verdict::Bury, Outcome::Dead { fencing: self.lease.fencing() }),
            None => (self.terms.undo(Verdict::Vacate), Outcome::Released { retry_after: self.retry_in() }),
        };
        let release = self.terms.release(verdict, error);
        let settled =
            self.insist(report, "release", || self.executor.0.store.release(self.lease.held(), &release)).await;
        self.settled();
        match settled {
            Ok(Settled::Done) => outcome,
            Ok(Settled::Lost { .. }) => Outcome::LeaseLost,
            Err(_) => Outcome::Released { retry_after: self.lease.remaining().max(Duration::from_millis(1)) },
        }
    }

    /// Tries a settling step until it is answered, or until the guard (but at least for a tenth of the lease).
    async fn insist<Fut>(
        &self,
        report: &Report,
        step: &'static str,
        again: impl Fn() -> Fut,
    ) -> Result<Settled, StoreError>
    where
        Fut: Future<Output = Result<Settled, StoreError>>,
    {
        let clock = &*self.executor.0.clock;
        let until = self.lease.guard().max(clock.now() + self.lease.length() / 10);
        let mut last = None;
        let tries = async {
            let mut rest = Duration::from_millis(10);
            loop {
                // One try may not use up all of the time: a connection that hangs is given up for a fresh one.
                let patience = (until.saturating_duration_since(clock.now()) / 3).max(Duration::from_millis(1));
                let error = match before(clock, clock.now() + patience, again()).await {
                    Some(Ok(settled)) => return Ok(settled),
                    Some(Err(error)) => error,
                    None => StoreError::new(StoreErrorKind::Ambiguous).because("no answer in time"),
                };
                report.event(&Event::StoreFailed { step, error: &error });
                if !error.is_worth_a_retry() {
                    return Err(error);
                }
                last = Some(error);
                pause(clock, rest).await;
                rest = (rest * 2).min(Duration::from_secs(1));
            }
        };
        match before(clock, until, tries).await {
            Some(ended) => ended,
            None => Err(last.unwrap_or_else(|| {
                StoreError::new(StoreErrorKind::Ambiguous).because("no answer before the lease's end")
            })),
        }
    }

    fn settled(&self) {
        let key = self.lease.key();
        self.executor.0.deferrals.forget(key);
        self.executor.0.waiters.wake(key.hash());
    }

    fn retry_in(&self) -> Duration {
        let bits = self.executor.0.entropy.bits().unwrap_or_default();
        let times = self.lease.attempt().saturating_sub(1);
        delay(self.terms.retry_delay, self.terms.retry_delay_max, times, self.terms.jitter, bits)
    }
}

/// The value's bytes, if they can be kept. The run counts as done in any case.
fn kept<P, C, R>(value: &P::Value, terms: &Terms, report: &Report) -> Option<Arc<[u8]>>
where
    P: Replies<R>,
    C: Codec<P::Value>,
{
    let lost = |reason: &str| report.event(&Event::ResultNotKept { reason });
    match C::encode(value) {
        Ok(Some(bytes)) if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > terms.max_result => {
            lost(&format!("{} bytes, max_result is {}", bytes.len(), terms.max_result));
            None
        }
        Ok(bytes) => bytes.map(Arc::from),
        Err(error) => {
            lost(&error.to_string());
            None
        }
    }
}

impl Terms {
    /// Without a limit there is nothing to remember.
    pub(super) fn undo(&self, verdict: Verdict) -> Verdict {
        if self.max_attempts() > 0 { verdict } else { Verdict::Delete }
    }

    pub(super) fn release(&self, verdict: Verdict, error: &str) -> Release {
        Release { verdict, delay: Duration::ZERO, memory: self.memory, error: Arc::from(error) }
    }
}
