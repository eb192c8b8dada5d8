//! A settling step: a completion or release, retried until the store answers, if necessary in the background.
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::Span;

use super::attempt::{Attempt, try_deadline};
use super::release::leads_to_state;
use super::report::Report;
use crate::clock::pause;
use crate::engine::{DrainPhase, Engine, no_answer};
use crate::observe::RunInfo;
use crate::transaction::TransactionalRun;
use crate::{ClaimHandle, Completion, Event, Lease, Release, Settled, Store, StoreError, StoreErrorKind};

/// The store request that ends a run.
pub(crate) enum SettlingStep {
    Complete(Completion),
    Release(Release),
}

/// A settling step with all data that it needs after its call has returned.
struct StepRetry {
    engine: Arc<Engine>,
    lease: Lease,
    transaction_store: Option<Arc<dyn TransactionalRun>>,
    span: Option<Span>,
    step: SettlingStep,
    retry_deadline: Instant,
}

/// The answer, and whether a copy of the request was sent whose result is unknown.
type StepReply = (Result<Settled, StoreError>, bool);

impl SettlingStep {
    fn name(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Release(_) => "release",
        }
    }

    fn send<'s>(
        &'s self,
        store: &'s dyn Store,
        held: &'s ClaimHandle,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Unpin + 's {
        let mut sent = match self {
            Self::Complete(completion) => store.complete(held, completion),
            Self::Release(release) => store.release(held, release),
        };
        poll_fn(move |context| {
            let polled = catch_unwind(AssertUnwindSafe(|| sent.as_mut().poll(context)));
            // The step may have been applied.
            polled.unwrap_or_else(|_| {
                Poll::Ready(Err(StoreError::new(StoreErrorKind::Ambiguous).because("the store panicked")))
            })
        })
    }
}

impl Attempt<'_> {
    /// Retries a settling step until the store answers or a drain ends.
    ///
    /// The retries stop at the lease's guard, but not before a tenth of the lease has passed. The call waits for
    /// `settle_timeout`; after that time, the retries continue in the background.
    pub(crate) fn apply_step(&self, report: &Report<'_>, step: SettlingStep) -> impl Future<Output = StepReply> {
        async move {
            let clock = &self.engine.clock;
            let now = clock.now();
            let is_first = self.settlement_start.set(now).is_ok();
            if !is_first && self.return_deadline(now) <= now {
                // An earlier step of this settlement has used up the time.
                return Box::pin(self.retry_step(report, step, now, None)).await;
            }
            // Computed once, because a renewal on its way may still extend the lease.
            let deadline = OnceLock::new();
            let first = || *deadline.get_or_init(|| self.first_try_deadline(now));
            let answer = self.engine.before(first, step.send(self.store(), self.lease.settling_handle())).await;
            match &answer {
                Some(answer) => report.store_answered(step.name(), now, answer),
                None => report.store_answered::<()>(step.name(), now, &Err(no_answer("in time"))),
            }
            match answer {
                Some(Ok(settled)) => (Ok(settled), false),
                // The drain has ended the try: there is no time for another.
                None if self.engine.drain.has_reached(DrainPhase::GraceEnded) && clock.now() < first() => {
                    (Err(no_answer("before the end of the drain")), true)
                }
                answer => {
                    let answer = answer.unwrap_or_else(|| Err(no_answer("in time")));
                    Box::pin(self.retry_step(report, step, now, Some(answer))).await
                }
            }
        }
    }

    async fn retry_step(
        &self,
        report: &Report<'_>,
        step: SettlingStep,
        began: Instant,
        answer: Option<Result<Settled, StoreError>>,
    ) -> StepReply {
        let (retry_deadline, return_deadline) = (self.retry_deadline(began), self.return_deadline(began));
        let transaction_store = self.prepared().transaction_store.clone();
        // A transaction ends with its call.
        let in_place = return_deadline >= retry_deadline || transaction_store.is_some();
        let (engine, lease, span) = (self.engine.clone(), self.lease.clone(), report.span().cloned());
        let retry = StepRetry { engine, lease, transaction_store, span, step, retry_deadline };
        if in_place {
            return retry.run(answer).await;
        }
        let (guard_sender, mut guard_receiver) = oneshot::channel();
        let _handover = DrainHandover { engine: self.engine.clone(), guard_sender: Some(guard_sender) };
        let background = tokio::spawn(async move {
            let answer = retry.run(answer).await;
            retry.engine.wake_waiters(retry.lease.key());
            if let Ok(_guard) = guard_receiver.try_recv() {
                retry.report_late(&answer);
            }
            answer
        });
        let ended = self.engine.before(|| return_deadline, background).await;
        ended.and_then(Result::ok).unwrap_or_else(|| (Err(no_answer("within `settle_timeout`")), true))
    }
}

/// A guard that transfers the call's entry in the drain state to the background step, if the call returns or is dropped
/// first. A drain then waits for the step and counts the run once.
struct DrainHandover {
    engine: Arc<Engine>,
    guard_sender: Option<oneshot::Sender<DrainGuard>>,
}

impl Drop for DrainHandover {
    fn drop(&mut self) {
        if let Some(guard_sender) = self.guard_sender.take().filter(|guard_sender| !guard_sender.is_closed()) {
            self.engine.drain.begin_call();
            // If the step has ended, `send` returns the guard, and dropping the guard here ends the entry.
            drop(guard_sender.send(DrainGuard(self.engine.clone())));
        }
    }
}

/// An entry in the drain state: the background step counts as a call in progress until the guard is dropped.
struct DrainGuard(Arc<Engine>);

impl Drop for DrainGuard {
    fn drop(&mut self) {
        self.0.drain.end_call();
    }
}

impl StepRetry {
    /// Repeats the step until the store answers. `answer` is the result of a first try.
    async fn run(&self, mut answer: Option<Result<Settled, StoreError>>) -> StepReply {
        let clock = &*self.engine.clock;
        let (mut last, mut is_ambiguous) = (None, false);
        let tries = async {
            let mut pause_for = Duration::from_millis(10);
            loop {
                let reply = match answer.take() {
                    Some(answer) => answer,
                    None => self.send().await,
                };
                let error = match reply {
                    Ok(settled) => return Ok(settled),
                    Err(error) => error,
                };
                is_ambiguous |= error.kind() == StoreErrorKind::Ambiguous;
                self.report(&error);
                if !error.is_worth_a_retry() {
                    return Err(error);
                }
                last = Some(error);
                pause(clock, pause_for).await;
                pause_for = (pause_for * 2).min(Duration::from_secs(1));
            }
        };
        let ended = self.engine.before(|| self.retry_deadline, pin!(tries)).await;
        let settled = ended.unwrap_or_else(|| Err(last.unwrap_or_else(|| no_answer("before the lease expired"))));
        (settled, is_ambiguous)
    }

    async fn send(&self) -> Result<Settled, StoreError> {
        let sent = self.engine.clock.now();
        let retry_deadline = try_deadline(sent, self.retry_deadline);
        let answer =
            self.engine.before(|| retry_deadline, self.step.send(self.store(), self.lease.settling_handle())).await;
        let answer = answer.unwrap_or_else(|| Err(no_answer("in time")));
        if self.engine.observer.is_timed {
            let elapsed = self.engine.clock.now().saturating_duration_since(sent);
            self.notify(&Event::StoreAnswered { step: self.step.name(), error: answer.as_ref().err(), elapsed });
        }
        answer
    }

    fn store(&self) -> &dyn Store {
        self.transaction_store.as_deref().map_or(&*self.engine.store, |own| own)
    }

    fn report(&self, error: &StoreError) {
        self.notify(&Event::StoreFailed { step: self.step.name(), error });
    }

    /// Reports the end of a step whose call has returned.
    fn report_late(&self, (settled, is_ambiguous): &StepReply) {
        let lost = |now| {
            StoreError::new(StoreErrorKind::NotApplied).because(format!("the lease was lost; the key is {now:?}"))
        };
        let lost = match (settled, &self.step) {
            // An earlier copy with a lost answer was applied.
            (Ok(Settled::Lost { now }), SettlingStep::Release(release))
                if *is_ambiguous && leads_to_state(release.kind, *now) =>
            {
                None
            }
            (Ok(Settled::Lost { now }), _) => Some(lost(now)),
            _ => None,
        };
        let error = settled.as_ref().err().or(lost.as_ref());
        self.notify(&Event::SettledLate { step: self.step.name(), error });
    }

    fn notify(&self, event: &Event<'_>) {
        let names = self.lease.handler_name();
        let run = RunInfo::new(&names.scene, &names.scope, Some(self.lease.key()));
        let run = RunInfo { attempt: Some(self.lease.attempt()), fencing: Some(self.lease.fencing()), ..run };
        self.engine.observer.on(self.span.as_ref(), &run, event);
    }
}
