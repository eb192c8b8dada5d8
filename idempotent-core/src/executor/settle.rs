//! The last step: flip the marker, or delete it.
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::handler::Handler;
use super::insist::Settling;
use super::judge::{Judged, Worth};
use super::report::Report;
use super::take_back::{known_steps, spared, sparing_steps};
use crate::backoff::delay;
use crate::policy::Terms;
use crate::{
    Completion, Event, Key, Outcome, Rejection, Release, Replies, Settled, StateKind, StoreError, StoreErrorKind,
    Verdict,
};

/// What a run came to.
pub(super) struct PutDown<O> {
    pub(super) output: O,
    pub(super) outcome: Outcome,
    /// The bytes a duplicate gets.
    pub(super) kept: Option<Arc<[u8]>>,
}

/// What the store said to a completion that went with others.
pub(super) struct Told {
    pub(super) answer: Result<Settled, StoreError>,
    /// There is no time for another try.
    pub(super) is_last: bool,
}

impl Attempt<'_> {
    /// Settles the run by what its handler's answer came to. `told`: what the store said to its completion, where that
    /// went with others. `inner` is what the runs inside it came to.
    pub(super) async fn put_down<P: Replies<R>, C, R>(
        &mut self,
        report: &mut Report<'_>,
        judged: Judged<P::Value, P::Failure>,
        told: Option<Told>,
        inner: Option<Outcome>,
        rules: &Handler<P, C, R, ()>,
    ) -> PutDown<P::Output<R>> {
        let mut flipped = None;
        let (output, outcome) = match judged {
            Judged::Done(value, kept) => {
                match self.flip(report, kept.clone(), told).await {
                    Ok(()) => {
                        if self.comes_in_line() {
                            Box::pin(self.over_in_line(report)).await;
                        }
                        flipped = kept;
                        (P::value(value), Outcome::Ran)
                    }
                    Err(Rejection::RolledBack { cause, .. }) => {
                        // Nothing of the run is there: it failed, whatever it answered.
                        let worth = Worth::AnotherRun;
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
            Judged::NotDone(value) => {
                let worth = Worth::AnotherRun;
                (P::value(value), Box::pin(self.delete(report, worth, "failed by its value".into(), inner)).await)
            }
            Judged::Failed(failure, worth, error) => {
                // Boxed: a run that went well should not carry its failure along.
                (P::failure(failure), Box::pin(self.delete(report, worth, error, inner)).await)
            }
        };
        self.end(report, outcome.clone());
        PutDown { output, outcome, kept: flipped }
    }

    /// A handler that panicked: its key is free again.
    pub(super) async fn panicked(&mut self, report: &mut Report<'_>) -> Outcome {
        let outcome = self.delete(report, Worth::AnotherRun, "the handler panicked".into(), None).await;
        self.end(report, outcome.clone());
        outcome
    }

    /// What completes the run. From here on a drop leaves the key to its lease: it is done, recorded or not. The heartbeat
    /// stops here, so that refused completions cannot prolong the lease for ever.
    pub(super) fn completion(&mut self, value: Option<Arc<[u8]>>) -> Completion {
        self.guard.disarm();
        self.begin_to_settle();
        Completion { value, retain: self.terms().retain }
    }

    /// Consuming → consumed, by the same token until the guard as it stood when the handler ended. A handler that
    /// finished late still gets a try: the token guards it, and nobody may have taken over.
    async fn flip(
        &mut self,
        report: &Report<'_>,
        value: Option<Arc<[u8]>>,
        told: Option<Told>,
    ) -> Result<(), Rejection> {
        let done = self.completion(value);
        if let Some(Told { answer: Err(error), .. }) = &told {
            report.event(&Event::StoreFailed { step: "complete", error });
        }
        let settled = match told {
            Some(Told { answer, is_last }) if is_last || answer.is_ok() => answer,
            // What failed for all may go well for one, whatever it was.
            _ => self.insist(report, Settling::Complete(done)).await.0,
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
    pub(super) async fn delete(
        &mut self,
        report: &Report<'_>,
        worth: Worth,
        error: Cow<'static, str>,
        inner: Option<Outcome>,
    ) -> Outcome {
        let (worth, error) = Box::pin(self.look_at_steps(worth, error, inner.as_ref())).await;
        self.begin_to_settle();
        let dead = || (Verdict::Bury, Outcome::Dead { fencing: self.lease.fencing() });
        let (verdict, outcome) = match inner.filter(Outcome::is_deferral) {
            _ if worth == Worth::Parked => dead(),
            _ if worth == Worth::NoMore => (Verdict::Fail, Outcome::Failed),
            Some(inner) => (Verdict::Refund, inner),
            None if self.is_last() => dead(),
            None => (self.terms().undo(Verdict::Vacate), Outcome::Released { retry_after: self.retry_in() }),
        };
        let release = self.releasing(verdict, &error).await;
        let verdict = release.verdict;
        let (settled, unheard) = self.insist(report, Settling::Release(release)).await;
        self.tell_waiters();
        let applied = |outcome| {
            if worth == Worth::Parked {
                report.event(&Event::StepsParked { error: &error });
            }
            outcome
        };
        match settled {
            Ok(Settled::Done) => applied(outcome),
            // An earlier copy whose answer got lost was applied.
            Ok(Settled::Lost { now }) if unheard && leads_to(verdict, now) => applied(outcome),
            Ok(Settled::Lost { .. }) => Outcome::LeaseLost,
            Err(_) => Outcome::Released { retry_after: self.lease.remaining().max(Duration::from_millis(1)) },
        }
    }

    /// The release of a verdict, so that no steps are lost that another run is to replay.
    pub(super) async fn releasing(&self, verdict: Verdict, error: &str) -> Release {
        let (release, limit) = (self.terms().release(verdict, error), self.terms().max_attempts() > 0);
        let (lease, store) = (&self.lease, &*self.executor.0.store);
        match known_steps(lease, limit) {
            // What costs nothing is not boxed.
            Some(false) => release,
            known => {
                let sparing = Box::pin(sparing_steps(store, lease.held(), known, release.clone(), limit));
                let now = self.executor.0.clock.now();
                let until = self.gives_up_at(now).min(now + lease.length() / 10);
                // A store that does not answer may hold steps, like one that answers with an error.
                self.executor.before(until, sparing).await.unwrap_or_else(|| spared(release, limit))
            }
        }
    }

    pub(super) fn tell_waiters(&self) {
        self.executor.tell_waiters(self.lease.key());
    }

    fn retry_in(&self) -> Duration {
        self.executor.retry_in(self.terms(), self.lease.attempt())
    }
}

impl super::Executor {
    /// Tells this process's calls of this key that its record has changed.
    pub(super) fn tell_waiters(&self, key: &Key) {
        self.0.deferrals.forget(key);
        self.0.waiters.wake(key.hash());
    }

    /// When a run that failed should be tried again.
    pub(super) fn retry_in(&self, terms: &Terms, attempt: u32) -> Duration {
        let bits = self.0.entropy.bits().unwrap_or_default();
        delay(terms.retry_delay, terms.retry_delay_max, attempt.saturating_sub(1), terms.jitter, bits)
    }
}

impl Terms {
    /// Without a limit there is nothing to remember.
    pub(super) fn undo(&self, verdict: Verdict) -> Verdict {
        if self.max_attempts() > 0 { verdict } else { Verdict::Delete }
    }

    pub(super) fn release(&self, verdict: Verdict, error: &str) -> Release {
        // After the window an equal call is another one, and has nothing to do with what failed before.
        let memory = if self.window.is_zero() { self.memory } else { self.window };
        release(verdict, memory, error)
    }
}

pub(super) fn release(verdict: Verdict, memory: Duration, error: &str) -> Release {
    Release { verdict, delay: Duration::ZERO, memory, error: Arc::from(error) }
}

/// Returns true if an applied release of this verdict leaves a key in this state.
pub(super) fn leads_to(verdict: Verdict, now: StateKind) -> bool {
    match verdict {
        Verdict::Delete | Verdict::Refund => matches!(now, StateKind::Absent | StateKind::Vacant),
        Verdict::Vacate => now == StateKind::Vacant,
        Verdict::Fail => now == StateKind::Failed,
        Verdict::Bury => now == StateKind::Dead,
    }
}
