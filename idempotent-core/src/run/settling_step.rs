//! A settling step, tried until the store answers: in the background once the call has waited long enough.
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::Span;

use super::attempt::{Attempt, try_until};
use super::release::leads_to;
use super::report::Report;
use crate::clock::pause;
use crate::engine::{DrainPhase, Engine, no_answer};
use crate::observe::Run;
use crate::transaction::OneRun;
use crate::{Completion, Event, Held, Lease, Release, Settled, Store, StoreError, StoreErrorKind};

/// The end of a run, for its record.
pub(crate) enum SettlingStep {
    Complete(Completion),
    Release(Release),
}

/// A settling step with all that it needs once its call has ended.
struct StepRetry {
    engine: Arc<Engine>,
    lease: Lease,
    via: Option<Arc<dyn OneRun>>,
    span: Option<Span>,
    step: SettlingStep,
    until: Instant,
}

/// The answer, and whether a copy of the step was sent whose fate is unknown.
type Answer = (Result<Settled, StoreError>, bool);

impl SettlingStep {
    fn name(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Release(_) => "release",
        }
    }

    async fn ask(&self, store: &dyn Store, held: &Held) -> Result<Settled, StoreError> {
        match self {
            Self::Complete(completion) => store.complete(held, completion).await,
            Self::Release(release) => store.release(held, release).await,
        }
    }
}

impl Attempt<'_> {
    /// Retries a settling step until the store answers or a drain ends. The retries stop at the lease's guard, but not before a
    /// tenth of the lease has passed. The call waits for `settle_timeout`; after that time, the retries continue in the
    /// background.
    pub(crate) async fn insist(&self, report: &Report<'_>, step: SettlingStep) -> Answer {
        let clock = &self.engine.clock;
        let now = clock.now();
        if self.answers_at(now) <= now {
            // Used up by an earlier step of this settlement.
            return Box::pin(self.insist_again(report, step, now, None)).await;
        }
        let first = self.gives_up_at(now);
        match self.engine.before(first, step.ask(self.store(), self.lease.held())).await {
            Some(Ok(settled)) => (Ok(settled), false),
            // Cut off by the end of a drain: there is no time for another.
            None if self.engine.drain.has_reached(DrainPhase::Closed) && clock.now() < first => {
                (Err(no_answer("before the drain's end")), true)
            }
            answer => {
                let answer = answer.unwrap_or_else(|| Err(no_answer("in time")));
                Box::pin(self.insist_again(report, step, now, Some(answer))).await
            }
        }
    }

    async fn insist_again(
        &self,
        report: &Report<'_>,
        step: SettlingStep,
        began: Instant,
        answer: Option<Result<Settled, StoreError>>,
    ) -> Answer {
        let (until, answers_at) = (self.insists_until(began), self.answers_at(began));
        let via = self.prepared.via.clone();
        // A transaction ends with its call.
        let here = answers_at >= until || via.is_some();
        let (engine, lease, span) = (self.engine.clone(), self.lease.clone(), report.span().cloned());
        let insistence = StepRetry { engine, lease, via, span, step, until };
        if here {
            return insistence.run(answer).await;
        }
        let (to, mut handed_over) = oneshot::channel();
        let _handover = GateHandover { engine: self.engine.clone(), to: Some(to) };
        let going_on = tokio::spawn(async move {
            let answer = insistence.run(answer).await;
            insistence.engine.tell_waiters(insistence.lease.key());
            if let Ok(_guard) = handed_over.try_recv() {
                insistence.report_late(&answer);
            }
            answer
        });
        let ended = self.engine.before(answers_at, going_on).await;
        ended.and_then(Result::ok).unwrap_or_else(|| (Err(no_answer("within `settle_timeout`")), true))
    }
}

/// A guard that hands the call's entry in the gate over to the background step, if the call returns or is dropped first. A drain
/// then waits for the step and counts the run once.
struct GateHandover {
    engine: Arc<Engine>,
    to: Option<oneshot::Sender<GateGuard>>,
}

impl Drop for GateHandover {
    fn drop(&mut self) {
        if let Some(to) = self.to.take().filter(|to| !to.is_closed()) {
            self.engine.drain.enter();
            // If the step has ended meanwhile, `send` returns the guard, which leaves the gate here.
            drop(to.send(GateGuard(self.engine.clone())));
        }
    }
}

/// A guard of the gate: the background step counts among the runs until the guard is dropped.
struct GateGuard(Arc<Engine>);

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.0.drain.leave();
    }
}

impl StepRetry {
    /// Repeats the step until the store answers. `answer` is the result of a first try.
    async fn run(&self, mut answer: Option<Result<Settled, StoreError>>) -> Answer {
        let clock = &*self.engine.clock;
        let (mut last, mut unheard) = (None, false);
        let tries = async {
            let mut rest = Duration::from_millis(10);
            loop {
                let asked = match answer.take() {
                    Some(answer) => answer,
                    None => self.ask().await,
                };
                let error = match asked {
                    Ok(settled) => return Ok(settled),
                    Err(error) => error,
                };
                unheard |= error.kind() == StoreErrorKind::Ambiguous;
                self.report(&error);
                if !error.is_worth_a_retry() {
                    return Err(error);
                }
                last = Some(error);
                pause(clock, rest).await;
                rest = (rest * 2).min(Duration::from_secs(1));
            }
        };
        let ended = self.engine.before(self.until, tries).await;
        let settled = ended.unwrap_or_else(|| Err(last.unwrap_or_else(|| no_answer("before the lease's end"))));
        (settled, unheard)
    }

    async fn ask(&self) -> Result<Settled, StoreError> {
        let until = try_until(self.engine.clock.now(), self.until);
        let answer = self.engine.before(until, self.step.ask(self.store(), self.lease.held())).await;
        answer.unwrap_or_else(|| Err(no_answer("in time")))
    }

    fn store(&self) -> &dyn Store {
        self.via.as_deref().map_or(&*self.engine.store, |own| own)
    }

    fn report(&self, error: &StoreError) {
        self.tell(&Event::StoreFailed { step: self.step.name(), error });
    }

    /// Reports the end of a step whose call has returned.
    fn report_late(&self, (settled, unheard): &Answer) {
        let lost = |now| {
            StoreError::new(StoreErrorKind::NotApplied).because(format!("the lease was lost; the key is {now:?}"))
        };
        let lost = match (settled, &self.step) {
            // An earlier copy whose answer got lost was applied.
            (Ok(Settled::Lost { now }), SettlingStep::Release(release))
                if *unheard && leads_to(release.verdict, *now) =>
            {
                None
            }
            (Ok(Settled::Lost { now }), _) => Some(lost(now)),
            _ => None,
        };
        let error = settled.as_ref().err().or(lost.as_ref());
        self.tell(&Event::SettledLate { step: self.step.name(), error });
    }

    fn tell(&self, event: &Event<'_>) {
        let names = self.lease.names();
        let run = Run::new(&names.scene, &names.scope, Some(self.lease.key()));
        let run = Run { attempt: Some(self.lease.attempt()), fencing: Some(self.lease.fencing()), ..run };
        let on = || self.engine.observer.on(&run, event);
        match &self.span {
            Some(span) => span.in_scope(on),
            None => on(),
        }
    }
}
