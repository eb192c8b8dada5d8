//! The report of each delivery's terminal outcome, however the delivery ends.
use std::time::{Duration, Instant};

use tracing::Span;

use super::prepared::Prepared;
use crate::context::TaskContext;
use crate::engine::Engine;
use crate::executor::{AdmittedClaim, Handler, Withdrawal};
use crate::key::Name;
use crate::lease::HandlerName;
use crate::observe::{self, RunInfo};
use crate::outcome::{OutcomeSlot, RunSummary};
use crate::panic_guard::catch_panic;
use crate::{
    Event, FencingToken, Grant, HandlerEnd, Identity, Key, Observer, OnStoreError, Outcome, Rejection, ReplyStrategy,
    Scene, StoreError, StoreNode, Tracing,
};

/// A reporter that publishes the outcome exactly once, to the outcome slot, the counters and the observer. A report
/// that is dropped without an outcome reports a dropped run.
pub(crate) struct Report<'e> {
    engine: &'e Engine,
    slot: Option<OutcomeSlot>,
    scene: Scene,
    scope: Name,
    key: Option<Key>,
    attempt: Option<u32>,
    fencing: Option<FencingToken>,
    /// True if the consumer may acknowledge a duplicate of a run in flight.
    acks_in_flight: bool,
    /// The node of the store that failed.
    node: Option<StoreNode>,
    /// The claim, if the consumer of the delivery wants to know its end.
    admitted: Option<Box<dyn AdmittedClaim>>,
    began_at: Instant,
    /// The start of a handler that has not ended yet, if the observer wants timing.
    handler_began_at: Option<Instant>,
    /// The span, or `None` if it is disabled.
    span: Option<Span>,
    stage: Stage,
}

/// The progress of a run, which determines the outcome that a drop reports.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Stage {
    Begun,
    /// The handler has started, so its effect is unknown after a drop.
    Started,
    /// The outcome is published.
    Ended,
}

impl<'e> Report<'e> {
    pub(crate) fn begin(engine: &'e Engine, identity: &Identity, context: &TaskContext) -> Self {
        engine.counters.began();
        engine.drain.begin_call();
        Self {
            engine,
            slot: context.slot.clone(),
            scene: identity.scene.clone(),
            scope: identity.scope.clone(),
            key: None,
            attempt: None,
            fencing: None,
            acks_in_flight: false,
            node: None,
            admitted: None,
            began_at: engine.clock.now(),
            handler_began_at: None,
            span: observe::span(&identity.scene, &identity.scope),
            stage: Stage::Begun,
        }
    }

    pub(crate) fn handler_name(&self) -> HandlerName {
        HandlerName { scene: self.scene.clone(), scope: self.scope.clone() }
    }

    pub(crate) fn set_key(&mut self, key: &Key) {
        if let Some(span) = &self.span {
            span.record("key", key.as_str());
        }
        self.key = Some(key.clone());
    }

    pub(crate) fn set_acks_in_flight(&mut self, acks_in_flight: bool) {
        self.acks_in_flight = acks_in_flight;
    }

    /// Asks the consumer of the delivery whether the claim may be sent.
    pub(crate) fn admit(&mut self, context: &TaskContext, prepared: &Prepared) -> Result<(), StoreError> {
        let Some(admission) = context.delivery.admission.as_ref().filter(|_| !prepared.is_nested) else {
            return Ok(());
        };
        let needs_no_answer = matches!(prepared.policy.on_store_error, OnStoreError::RunUnprotected);
        if needs_no_answer || prepared.transaction_store.is_some() {
            return Ok(());
        }
        self.admitted = admission.admit(&*self.engine.store, &prepared.request.key)?;
        if prepared.ordering.is_some() {
            // The time until its turn says nothing about the store.
            self.claim_exempt();
        }
        Ok(())
    }

    /// Notes that the store answered the claim.
    pub(crate) fn claim_answered(&self) {
        if let Some(admitted) = &self.admitted {
            admitted.answered();
        }
    }

    /// Notes that the store was not asked.
    pub(crate) fn claim_exempt(&self) {
        if let Some(admitted) = &self.admitted {
            admitted.exempt();
        }
    }

    /// Returns the end of the claim's admission, if it may end before the claim.
    pub(crate) fn withdrawal(&self) -> Option<Withdrawal> {
        self.admitted.as_ref()?.withdrawal()
    }

    pub(crate) fn record_grant(&mut self, grant: &Grant) {
        (self.attempt, self.fencing) = (Some(grant.attempt), Some(grant.fencing));
        if let Some(span) = &self.span {
            span.record("attempt", grant.attempt);
            span.record("fencing", grant.fencing.0);
        }
        self.event(&Event::Claimed { taken_over: grant.taken_over });
    }

    /// Marks the handler as started, so that a drop reports an unknown effect.
    pub(crate) fn started(&mut self) {
        self.stage = Stage::Started;
        if self.engine.observer.is_timed {
            self.event(&Event::HandlerStarted);
            self.handler_began_at = Some(self.engine.clock.now());
        }
    }

    /// Reports the end of the handler. The first report counts, and the end of the run is the last one.
    pub(crate) fn handler_ended(&mut self, end: HandlerEnd) {
        if let Some(began) = self.handler_began_at.take() {
            self.event(&Event::HandlerEnded { end, elapsed: self.since(began) });
        }
    }

    /// Reports a call of the store that was sent at this instant.
    pub(crate) fn store_answered<T>(&self, step: &'static str, sent: Instant, answer: &Result<T, StoreError>) {
        // An unreadable record is an answer of the store, too.
        if step == "claim" && answer.as_ref().err().is_none_or(|error| !error.is_worth_a_retry()) {
            self.claim_answered();
        }
        if self.engine.observer.is_timed {
            self.event(&Event::StoreAnswered { step, error: answer.as_ref().err(), elapsed: self.since(sent) });
        }
    }

    /// Returns the time since then, or zero if the clock panics: the report of a dropped run must not panic.
    fn since(&self, instant: Instant) -> Duration {
        let now = catch_panic("clock", || self.engine.clock.now());
        now.map_or(Duration::ZERO, |now| now.saturating_duration_since(instant))
    }

    pub(crate) fn event(&self, event: &Event<'_>) {
        self.engine.observer.on(self.span.as_ref(), &self.observed_run(), event);
    }

    /// Returns the span of the run. A batch has one span per item.
    pub(crate) fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        self.stage = Stage::Ended;
        self.publish(outcome);
    }

    /// Reports a rejection, and returns the handler's answer for it.
    pub(crate) fn reject<P: ReplyStrategy<R>, C, R, F>(
        &mut self,
        rules: &Handler<P, C, R, F>,
        rejection: Rejection,
    ) -> P::Output<R> {
        self.node = rejection.node().cloned();
        self.end(Outcome::of(&rejection));
        rules.reject(rejection)
    }

    /// Returns the instant at which the call arrived.
    pub(crate) fn began_at(&self) -> Instant {
        self.began_at
    }

    /// Returns the key and the attempt of an ended run.
    pub(crate) fn key_and_attempt(mut self) -> (Option<Key>, Option<u32>) {
        (self.key.take(), self.attempt)
    }

    fn observed_run(&self) -> RunInfo<'_> {
        let run = RunInfo::new(&self.scene, &self.scope, self.key.as_ref());
        RunInfo { attempt: self.attempt, fencing: self.fencing, ..run }
    }

    fn publish(&mut self, outcome: Outcome) {
        let engine = self.engine;
        engine.counters.ended(&outcome);
        self.handler_ended(HandlerEnd::Aborted);
        if let Some(span) = &self.span {
            catch_panic("subscriber", || span.record("outcome", outcome.name()));
        }
        self.event(&Event::Ended { outcome: &outcome, elapsed: self.since(self.began_at) });
        if let Some(slot) = &self.slot {
            let acks_in_flight = self.acks_in_flight && matches!(outcome, Outcome::InFlight { .. });
            let (key, attempt, node) = (self.key.clone(), self.attempt, self.node.take());
            slot.tell(RunSummary { outcome, key, attempt, acks_in_flight, node });
        }
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Begun => self.end(Outcome::Cancelled),
            Stage::Started => self.end(Outcome::Abandoned),
            Stage::Ended => {}
        }
        self.engine.drain.end_call();
    }
}

/// Reports a call without an executor to the outcome slot and the log. No executor exists to count it.
pub(crate) fn without_executor(identity: &Identity, rejection: &Rejection) {
    let outcome = Outcome::of(rejection);
    let run = RunInfo::new(&identity.scene, &identity.scope, None);
    Tracing.on(&run, &Event::Ended { outcome: &outcome, elapsed: Duration::ZERO });
    if let Some(slot) = &TaskContext::current().slot {
        slot.tell(RunSummary::without_run(outcome));
    }
}
