//! The settlement of a run: complete it, or release its key.
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::attempt::Attempt;
use super::classify::{Classified, RetryDecision};
use super::prepared::ResolvedOrdering;
use super::release::leads_to_state;
use super::report::Report;
use super::settling_step::SettlingStep;
use crate::context::TaskContext;
use crate::executor::Handler;
use crate::ordering::sequence;
use crate::outcome::OutcomeSlot;
use crate::{
    Completion, Event, HandlerEnd, Outcome, Rejection, ReleaseKind, ReplyStrategy, Settled, StoreError, StoreErrorKind,
};

/// A settled run.
pub(crate) struct SettledRun<O> {
    /// The caller's answer, or the panic of its strategy. The run is settled and reported in both cases.
    pub(crate) output: thread::Result<O>,
    pub(crate) outcome: Outcome,
    /// The encoded result for duplicates.
    pub(crate) stored_value: Option<Arc<[u8]>>,
}

impl<O> SettledRun<O> {
    /// Returns the answer, or resumes the panic of the strategy that builds it.
    pub(crate) fn answer(self) -> O {
        self.output.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Builds an answer by a strategy of the user.
fn build<O>(answer: impl FnOnce() -> O) -> thread::Result<O> {
    catch_unwind(AssertUnwindSafe(answer))
}

/// The store's reply to a completion that was sent as part of a batch.
pub(crate) struct StoreReply {
    pub(crate) answer: Result<Settled, StoreError>,
    /// True if there is no time for another try.
    pub(crate) is_last: bool,
}

impl Attempt<'_> {
    /// Settles the run by its handler's classified answer. `batch_reply` is the store's reply if the completion was
    /// sent in a batch. `nested` is the outcome of the runs inside this one.
    pub(crate) fn settle<P: ReplyStrategy<R>, C, R>(
        &mut self,
        report: &mut Report<'_>,
        classified: Classified<P::Value, P::Failure>,
        batch_reply: Option<Box<StoreReply>>,
        nested: Option<Outcome>,
        rules: &Handler<P, C, R, ()>,
    ) -> impl Future<Output = SettledRun<P::Output<R>>> {
        async move {
            let mut replayable = None;
            let (output, outcome) = match classified {
                Classified::Done(value, stored) => {
                    match self.complete(report, stored.clone(), batch_reply).await {
                        Ok(()) => {
                            if matches!(self.prepared().ordering.as_deref(), Some(ResolvedOrdering::Sequence(_))) {
                                Box::pin(sequence::note_consumed(self, report)).await;
                            }
                            replayable = stored;
                            (build(|| P::value(value)), Outcome::Ran)
                        }
                        Err(Rejection::RolledBack { cause, .. }) => {
                            // The record is not consumed, so the run failed whatever its answer.
                            let decision = RetryDecision::Retry;
                            let outcome = Box::pin(self.release_failed(
                                report,
                                decision,
                                "its transaction was not committed".into(),
                                None,
                            ));
                            let outcome = outcome.await;
                            let retry_after = outcome.retry_after().unwrap_or_default();
                            (build(|| rules.reject(Rejection::RolledBack { retry_after, cause })), outcome)
                        }
                        Err(rejection) => {
                            let outcome = Outcome::of(&rejection);
                            let answer =
                                || P::unrecorded(value, rejection).unwrap_or_else(|rejection| rules.reject(rejection));
                            (build(answer), outcome)
                        }
                    }
                }
                Classified::NotDone(value) => {
                    let decision = RetryDecision::Retry;
                    (
                        build(|| P::value(value)),
                        Box::pin(self.release_failed(report, decision, "failed by its value".into(), nested)).await,
                    )
                }
                Classified::Failed(failure, decision, error) => {
                    // Boxed so that a successful run does not carry the failure path.
                    let output = build(|| P::failure(failure));
                    (output, Box::pin(self.release_failed(report, decision, error, nested)).await)
                }
            };
            self.end(report, outcome.clone());
            SettledRun { output, outcome, stored_value: replayable }
        }
    }

    /// Releases the key after a panic of the handler.
    pub(crate) async fn settle_panic(&mut self, report: &mut Report<'_>) -> Outcome {
        report.handler_ended(HandlerEnd::Panic);
        let outcome = self.release_failed(report, RetryDecision::Retry, "the handler panicked".into(), None).await;
        self.end(report, outcome.clone());
        outcome
    }

    /// Builds the completion. If the call is dropped from here on, the key is held until its lease expires. Stops the
    /// renewal, so that refused completions cannot prolong the lease.
    pub(crate) fn completion(&mut self, value: Option<Arc<[u8]>>) -> Completion {
        self.guard.disarm();
        self.stop_renewal();
        Completion { value, retain: self.policy().retain }
    }

    /// Marks the key as consumed. Retries with the same owner token until the local guard of the lease.
    ///
    /// A handler that finished late still gets one try: the token protects the record, and the lease may not have been
    /// taken over.
    fn complete(
        &mut self,
        report: &Report<'_>,
        value: Option<Arc<[u8]>>,
        batch_reply: Option<Box<StoreReply>>,
    ) -> impl Future<Output = Result<(), Rejection>> {
        async move {
            let done = self.completion(value);
            if let Some(StoreReply { answer: Err(error), .. }) = batch_reply.as_deref() {
                report.event(&Event::StoreFailed { step: "complete", error });
            }
            let settled = match batch_reply {
                Some(reply) if reply.is_last || reply.answer.is_ok() => reply.answer,
                // A completion that failed in the batch may succeed alone.
                _ => self.apply_step(report, SettlingStep::Complete(done)).await.0,
            };
            self.wake_waiters();
            match settled {
                Ok(Settled::Done) => Ok(()),
                Ok(Settled::Lost { .. }) => Err(Rejection::LeaseLost),
                Err(cause) if matches!(cause.kind(), StoreErrorKind::RolledBack | StoreErrorKind::TransactionEnded) => {
                    Err(Rejection::RolledBack { retry_after: Duration::ZERO, cause: Some(cause) })
                }
                Err(cause) => Err(Rejection::Unrecorded { cause: Some(cause) }),
            }
        }
    }

    /// Releases the key of a failed run, as far as the attempts allow. An unconfirmed release only delays the retry
    /// until the lease expires.
    pub(crate) async fn release_failed(
        &mut self,
        report: &Report<'_>,
        decision: RetryDecision,
        error: Cow<'static, str>,
        nested: Option<Outcome>,
    ) -> Outcome {
        let (decision, error) = Box::pin(self.check_steps(decision, error, nested.as_ref())).await;
        self.begin_settlement();
        let dead = || (ReleaseKind::MarkDead, Outcome::Dead { fencing: self.lease.fencing() });
        let (verdict, outcome) = match nested.filter(Outcome::is_deferral) {
            _ if decision == RetryDecision::Park => dead(),
            _ if decision == RetryDecision::GiveUp => (ReleaseKind::MarkFailed, Outcome::Failed),
            Some(nested) => (ReleaseKind::Refund, nested),
            None if self.is_last_attempt() => dead(),
            None => (
                self.policy().vacate_or_delete(ReleaseKind::Vacate),
                Outcome::Released { retry_after: self.retry_delay() },
            ),
        };
        let release = self.prepare_release(verdict, &error).await;
        let verdict = release.kind;
        let (settled, is_ambiguous) = self.apply_step(report, SettlingStep::Release(release)).await;
        self.wake_waiters();
        match settled {
            Ok(Settled::Done) => {}
            // An earlier copy with a lost answer was applied.
            Ok(Settled::Lost { now }) if is_ambiguous && leads_to_state(verdict, now) => {}
            Ok(Settled::Lost { .. }) => return Outcome::LeaseLost,
            // The key was released. The error, which is reported, says that the handler has ended its transaction.
            Err(cause) if cause.kind() == StoreErrorKind::TransactionEnded => {}
            Err(_) => return Outcome::Released { retry_after: self.lease.remaining().max(Duration::from_millis(1)) },
        }
        if decision == RetryDecision::Park {
            report.event(&Event::StepsParked { error: &error });
        }
        outcome
    }

    /// Adjusts the decision by the run's steps. Compensates them if the run fails permanently; the lease is renewed
    /// meanwhile.
    pub(crate) async fn check_steps(
        &self,
        decision: RetryDecision,
        error: Cow<'static, str>,
        nested: Option<&Outcome>,
    ) -> (RetryDecision, Cow<'static, str>) {
        let Some(steps) = self.lease.steps_called() else { return (decision, error) };
        if let Some(parked) = steps.parked_reason() {
            return (RetryDecision::Park, parked.into());
        }
        let deferred = decision == RetryDecision::Retry && nested.is_some_and(Outcome::is_deferral);
        let ends = decision == RetryDecision::GiveUp || self.is_last_attempt() && !deferred || steps.is_compensated();
        if !ends {
            return (decision, error);
        }
        // The outcomes of runs inside compensations are not outcomes of this delivery.
        let context = TaskContext {
            lease: Some(self.lease.clone()),
            slot: Some(OutcomeSlot::default()),
            ..TaskContext::current()
        };
        match context.enter(steps.compensate_all(&self.lease)).await {
            Ok(()) if steps.is_compensated() => (RetryDecision::GiveUp, error),
            Ok(()) => (decision, error),
            // The next run retries the compensation. After the last run, it is left to an operator.
            Err(why) => (RetryDecision::Retry, format!("{why}; before that: {error}").into()),
        }
    }
}
