//! The settlement of a run: complete it, or release its key.
use std::borrow::Cow;
use std::sync::Arc;
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
use crate::{Completion, Event, Outcome, Rejection, Replies, Settled, StoreError, StoreErrorKind, Verdict};

/// What a run came to.
pub(crate) struct SettledRun<O> {
    pub(crate) output: O,
    pub(crate) outcome: Outcome,
    /// The bytes a duplicate gets.
    pub(crate) stored_value: Option<Arc<[u8]>>,
}

/// What the store said to a completion that went with others.
pub(crate) struct StoreReply {
    pub(crate) answer: Result<Settled, StoreError>,
    /// There is no time for another try.
    pub(crate) is_last: bool,
}

impl Attempt<'_> {
    /// Settles the run by what its handler's answer came to. `told`: what the store said to its completion, where that
    /// went with others. `inner` is what the runs inside it came to.
    pub(crate) async fn settle<P: Replies<R>, C, R>(
        &mut self,
        report: &mut Report<'_>,
        classified: Classified<P::Value, P::Failure>,
        batch_reply: Option<StoreReply>,
        nested: Option<Outcome>,
        rules: &Handler<P, C, R, ()>,
    ) -> SettledRun<P::Output<R>> {
        let mut replayable = None;
        let (output, outcome) = match classified {
            Classified::Done(value, stored) => {
                match self.complete(report, stored.clone(), batch_reply).await {
                    Ok(()) => {
                        if matches!(self.prepared.ordering.as_deref(), Some(ResolvedOrdering::Sequence(_))) {
                            Box::pin(sequence::note_consumed(self, report)).await;
                        }
                        replayable = stored;
                        (P::value(value), Outcome::Ran)
                    }
                    Err(Rejection::RolledBack { cause, .. }) => {
                        // Nothing of the run is there: it failed, whatever it answered.
                        let decision = RetryDecision::Retry;
                        let outcome = Box::pin(self.release_failed(
                            report,
                            decision,
                            "its transaction was rolled back".into(),
                            None,
                        ));
                        let outcome = outcome.await;
                        let retry_after = outcome.retry_after().unwrap_or_default();
                        (rules.reject(Rejection::RolledBack { retry_after, cause }), outcome)
                    }
                    Err(rejection) => {
                        let outcome = Outcome::of(&rejection);
                        let output = P::unrecorded(value, rejection);
                        (output.unwrap_or_else(|rejection| rules.reject(rejection)), outcome)
                    }
                }
            }
            Classified::NotDone(value) => {
                let decision = RetryDecision::Retry;
                (
                    P::value(value),
                    Box::pin(self.release_failed(report, decision, "failed by its value".into(), nested)).await,
                )
            }
            Classified::Failed(failure, decision, error) => {
                // Boxed: a run that went well should not carry its failure along.
                (P::failure(failure), Box::pin(self.release_failed(report, decision, error, nested)).await)
            }
        };
        self.end(report, outcome.clone());
        SettledRun { output, outcome, stored_value: replayable }
    }

    /// A handler that panicked: its key is free again.
    pub(crate) async fn settle_panic(&mut self, report: &mut Report<'_>) -> Outcome {
        let outcome = self.release_failed(report, RetryDecision::Retry, "the handler panicked".into(), None).await;
        self.end(report, outcome.clone());
        outcome
    }

    /// What completes the run. From here on a drop leaves the key to its lease: it is done, recorded or not. The heartbeat
    /// stops here, so that refused completions cannot prolong the lease for ever.
    pub(crate) fn completion(&mut self, value: Option<Arc<[u8]>>) -> Completion {
        self.guard.disarm();
        self.begin_settlement();
        Completion { value, retain: self.policy().retain }
    }

    /// Consuming → consumed, by the same token until the guard as it stood when the handler ended. A handler that
    /// finished late still gets a try: the token guards it, and nobody may have taken over.
    async fn complete(
        &mut self,
        report: &Report<'_>,
        value: Option<Arc<[u8]>>,
        batch_reply: Option<StoreReply>,
    ) -> Result<(), Rejection> {
        let done = self.completion(value);
        if let Some(StoreReply { answer: Err(error), .. }) = &batch_reply {
            report.event(&Event::StoreFailed { step: "complete", error });
        }
        let settled = match batch_reply {
            Some(StoreReply { answer, is_last }) if is_last || answer.is_ok() => answer,
            // What failed for all may go well for one, whatever it was.
            _ => self.apply_step(report, SettlingStep::Complete(done)).await.0,
        };
        self.wake_waiters();
        match settled {
            Ok(Settled::Done) => Ok(()),
            Ok(Settled::Lost { .. }) => Err(Rejection::LeaseLost),
            Err(cause) if cause.kind() == StoreErrorKind::RolledBack => {
                Err(Rejection::RolledBack { retry_after: Duration::ZERO, cause: Some(cause) })
            }
            Err(cause) => Err(Rejection::Unrecorded { cause: Some(cause) }),
        }
    }

    /// Takes the marker back, as far as the attempts allow. A store that does not confirm only delays the retry:
    /// the lease ends by itself.
    pub(crate) async fn release_failed(
        &mut self,
        report: &Report<'_>,
        decision: RetryDecision,
        error: Cow<'static, str>,
        nested: Option<Outcome>,
    ) -> Outcome {
        let (decision, error) = Box::pin(self.check_steps(decision, error, nested.as_ref())).await;
        self.begin_settlement();
        let dead = || (Verdict::Bury, Outcome::Dead { fencing: self.lease.fencing() });
        let (verdict, outcome) = match nested.filter(Outcome::is_deferral) {
            _ if decision == RetryDecision::Park => dead(),
            _ if decision == RetryDecision::GiveUp => (Verdict::Fail, Outcome::Failed),
            Some(nested) => (Verdict::Refund, nested),
            None if self.is_last_attempt() => dead(),
            None => {
                (self.policy().vacate_or_delete(Verdict::Vacate), Outcome::Released { retry_after: self.retry_delay() })
            }
        };
        let release = self.prepare_release(verdict, &error).await;
        let verdict = release.verdict;
        let (settled, is_ambiguous) = self.apply_step(report, SettlingStep::Release(release)).await;
        self.wake_waiters();
        match settled {
            Ok(Settled::Done) => outcome,
            // An earlier copy whose answer got lost was applied.
            Ok(Settled::Lost { now }) if is_ambiguous && leads_to_state(verdict, now) => outcome,
            Ok(Settled::Lost { .. }) => Outcome::LeaseLost,
            Err(_) => Outcome::Released { retry_after: self.lease.remaining().max(Duration::from_millis(1)) },
        }
    }

    /// What a failed run is worth, with a look at its steps. Those of a run that fails for good are taken back; the lease
    /// is kept alive meanwhile.
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
        // What compensations run is not what this delivery came to.
        let context = TaskContext {
            lease: Some(self.lease.clone()),
            slot: Some(OutcomeSlot::default()),
            ..TaskContext::current()
        };
        match context.enter(steps.compensate_all(&self.lease)).await {
            Ok(()) if steps.is_compensated() => (RetryDecision::GiveUp, error),
            Ok(()) => (decision, error),
            // Tried again by the next run, or left to a person where this was the last one.
            Err(why) => (RetryDecision::Retry, format!("{why}; before that: {error}").into()),
        }
    }
}
