//! The settlement of a run: complete it, or release its key.
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::classify::{Classified, RetryDecision};
use super::prepared::After;
use super::release::leads_to;
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
    pub(crate) kept: Option<Arc<[u8]>>,
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
        judged: Classified<P::Value, P::Failure>,
        told: Option<StoreReply>,
        inner: Option<Outcome>,
        rules: &Handler<P, C, R, ()>,
    ) -> SettledRun<P::Output<R>> {
        let mut flipped = None;
        let (output, outcome) = match judged {
            Classified::Done(value, kept) => {
                match self.complete(report, kept.clone(), told).await {
                    Ok(()) => {
                        if matches!(self.prepared.comes.as_deref(), Some(After::Line(_))) {
                            Box::pin(sequence::note_consumed(self, report)).await;
                        }
                        flipped = kept;
                        (P::value(value), Outcome::Ran)
                    }
                    Err(Rejection::RolledBack { cause, .. }) => {
                        // Nothing of the run is there: it failed, whatever it answered.
                        let worth = RetryDecision::AnotherRun;
                        let outcome =
                            Box::pin(self.delete(report, worth, "its transaction was rolled back".into(), None));
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
                let worth = RetryDecision::AnotherRun;
                (P::value(value), Box::pin(self.delete(report, worth, "failed by its value".into(), inner)).await)
            }
            Classified::Failed(failure, worth, error) => {
                // Boxed: a run that went well should not carry its failure along.
                (P::failure(failure), Box::pin(self.delete(report, worth, error, inner)).await)
            }
        };
        self.end(report, outcome.clone());
        SettledRun { output, outcome, kept: flipped }
    }

    /// A handler that panicked: its key is free again.
    pub(crate) async fn panicked(&mut self, report: &mut Report<'_>) -> Outcome {
        let outcome = self.delete(report, RetryDecision::AnotherRun, "the handler panicked".into(), None).await;
        self.end(report, outcome.clone());
        outcome
    }

    /// What completes the run. From here on a drop leaves the key to its lease: it is done, recorded or not. The heartbeat
    /// stops here, so that refused completions cannot prolong the lease for ever.
    pub(crate) fn completion(&mut self, value: Option<Arc<[u8]>>) -> Completion {
        self.guard.disarm();
        self.begin_to_settle();
        Completion { value, retain: self.terms().retain }
    }

    /// Consuming → consumed, by the same token until the guard as it stood when the handler ended. A handler that
    /// finished late still gets a try: the token guards it, and nobody may have taken over.
    async fn complete(
        &mut self,
        report: &Report<'_>,
        value: Option<Arc<[u8]>>,
        told: Option<StoreReply>,
    ) -> Result<(), Rejection> {
        let done = self.completion(value);
        if let Some(StoreReply { answer: Err(error), .. }) = &told {
            report.event(&Event::StoreFailed { step: "complete", error });
        }
        let settled = match told {
            Some(StoreReply { answer, is_last }) if is_last || answer.is_ok() => answer,
            // What failed for all may go well for one, whatever it was.
            _ => self.insist(report, SettlingStep::Complete(done)).await.0,
        };
        self.tell_waiters();
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
    pub(crate) async fn delete(
        &mut self,
        report: &Report<'_>,
        worth: RetryDecision,
        error: Cow<'static, str>,
        inner: Option<Outcome>,
    ) -> Outcome {
        let (worth, error) = Box::pin(self.look_at_steps(worth, error, inner.as_ref())).await;
        self.begin_to_settle();
        let dead = || (Verdict::Bury, Outcome::Dead { fencing: self.lease.fencing() });
        let (verdict, outcome) = match inner.filter(Outcome::is_deferral) {
            _ if worth == RetryDecision::Parked => dead(),
            _ if worth == RetryDecision::NoMore => (Verdict::Fail, Outcome::Failed),
            Some(inner) => (Verdict::Refund, inner),
            None if self.is_last() => dead(),
            None => (self.terms().undo(Verdict::Vacate), Outcome::Released { retry_after: self.retry_in() }),
        };
        let release = self.releasing(verdict, &error).await;
        let verdict = release.verdict;
        let (settled, unheard) = self.insist(report, SettlingStep::Release(release)).await;
        self.tell_waiters();
        match settled {
            Ok(Settled::Done) => outcome,
            // An earlier copy whose answer got lost was applied.
            Ok(Settled::Lost { now }) if unheard && leads_to(verdict, now) => outcome,
            Ok(Settled::Lost { .. }) => Outcome::LeaseLost,
            Err(_) => Outcome::Released { retry_after: self.lease.remaining().max(Duration::from_millis(1)) },
        }
    }

    /// What a failed run is worth, with a look at its steps. Those of a run that fails for good are taken back; the lease
    /// is kept alive meanwhile.
    pub(crate) async fn look_at_steps(
        &self,
        worth: RetryDecision,
        error: Cow<'static, str>,
        inner: Option<&Outcome>,
    ) -> (RetryDecision, Cow<'static, str>) {
        let Some(steps) = self.lease.steps_called() else { return (worth, error) };
        if let Some(parked) = steps.parked() {
            return (RetryDecision::Parked, parked.into());
        }
        let deferred = worth == RetryDecision::AnotherRun && inner.is_some_and(Outcome::is_deferral);
        let ends = worth == RetryDecision::NoMore || self.is_last() && !deferred || steps.is_taken_back();
        if !ends {
            return (worth, error);
        }
        // What compensations run is not what this delivery came to.
        let frame = TaskContext {
            lease: Some(self.lease.clone()),
            slot: Some(OutcomeSlot::default()),
            ..TaskContext::current()
        };
        match frame.enter(steps.take_back(&self.lease)).await {
            Ok(()) if steps.is_taken_back() => (RetryDecision::NoMore, error),
            Ok(()) => (worth, error),
            // Tried again by the next run, or left to a person where this was the last one.
            Err(why) => (RetryDecision::AnotherRun, format!("{why}; before that: {error}").into()),
        }
    }
}
