//! The metrics of one scope.
use std::fmt;

use idempotent_core::{BrokenOrder, Event, HandlerEnd, Outcome, RunInfo};
use metrics::{Counter, Gauge, Histogram};

use crate::catalogue;
use crate::recording::Recording;

/// The handles of the metrics of one scope. All counters start at 0, so that rates and alerts see the first event.
pub(crate) struct ScopeMetrics {
    recording: Recording,
    scene: Box<str>,
    scope: Box<str>,
    /// A counter for each of [`Outcome::names`].
    deliveries: Vec<Counter>,
    run_duration: [Histogram; CLASSES.len()],
    handler_duration: [Histogram; 4],
    active: Gauge,
    attempts: Histogram,
    takeovers: Counter,
    lease_lost: Counter,
    runtime_blocked: Counter,
    steps_parked: Counter,
    results_not_kept: Counter,
}

/// The groups of outcomes.
const CLASSES: [&str; 5] = ["executed", "duplicate", "deferred", "failed", "error"];

impl ScopeMetrics {
    pub(crate) fn new(recording: &Recording, scene: &str, scope: &str) -> Self {
        let counter = |metric| recording.counter(metric, &[scene, scope]);
        let of_outcome = |name: &&str| recording.counter(&catalogue::DELIVERIES, &[scene, scope, name]);
        let ends = [HandlerEnd::Ok, HandlerEnd::Error, HandlerEnd::Panic, HandlerEnd::Aborted];
        Self {
            deliveries: Outcome::names().iter().map(of_outcome).collect(),
            run_duration: CLASSES.map(|class| recording.histogram(&catalogue::RUN_DURATION, &[scene, scope, class])),
            handler_duration: ends
                .map(|end| recording.histogram(&catalogue::HANDLER_DURATION, &[scene, scope, end.name()])),
            active: recording.gauge(&catalogue::RUNS_ACTIVE, &[scene, scope]),
            attempts: recording.histogram(&catalogue::RUN_ATTEMPTS, &[scene, scope]),
            takeovers: counter(&catalogue::TAKEOVERS),
            lease_lost: counter(&catalogue::LEASE_LOST),
            runtime_blocked: counter(&catalogue::RUNTIME_BLOCKED),
            steps_parked: counter(&catalogue::STEPS_PARKED),
            results_not_kept: counter(&catalogue::RESULTS_NOT_KEPT),
            recording: recording.clone(),
            scene: scene.into(),
            scope: scope.into(),
        }
    }

    pub(crate) fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        match event {
            Event::HandlerStarted => self.active.increment(1),
            Event::HandlerEnded { end, elapsed } => {
                self.active.decrement(1);
                self.handler_duration[place_of(*end)].record(elapsed.as_secs_f64());
            }
            Event::Ended { outcome, elapsed } => {
                let name = outcome.name();
                if let Some(at) = Outcome::names().iter().position(|known| *known == name) {
                    self.deliveries[at].increment(1);
                }
                self.run_duration[class_of(outcome)].record(elapsed.as_secs_f64());
                if let (Outcome::Ran, Some(attempt)) = (outcome, run.attempt) {
                    self.attempts.record(attempt);
                }
            }
            Event::Claimed { taken_over: Some(_) } => self.takeovers.increment(1),
            Event::LeaseLost => self.lease_lost.increment(1),
            Event::RuntimeBlocked { .. } => self.runtime_blocked.increment(1),
            Event::StepsParked { .. } => self.steps_parked.increment(1),
            Event::ResultNotKept { .. } => self.results_not_kept.increment(1),
            Event::OrderBroken { why, skipped } => self.order_broken(*why, *skipped),
            _ => {}
        }
    }

    fn order_broken(&self, why: BrokenOrder, skipped: bool) {
        let why = match why {
            BrokenOrder::Failed => "failed",
            BrokenOrder::Dead => "dead",
            BrokenOrder::Missing => "missing",
            BrokenOrder::Late => "late",
            _ => "other",
        };
        let labels = [&*self.scene, &*self.scope, why, if skipped { "true" } else { "false" }];
        self.recording.counter(&catalogue::ORDER_BROKEN, &labels).increment(1);
    }
}

impl fmt::Debug for ScopeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeMetrics").field("scene", &self.scene).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Returns the place of the end among the histograms of the handler.
fn place_of(end: HandlerEnd) -> usize {
    match end {
        HandlerEnd::Ok => 0,
        HandlerEnd::Error => 1,
        HandlerEnd::Panic => 2,
        _ => 3,
    }
}

/// Returns the place of the outcome's class in [`CLASSES`].
fn class_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Ran | Outcome::Unprotected => 0,
        Outcome::Replayed | Outcome::ConsumedWithoutResult | Outcome::Duplicate => 1,
        Outcome::InFlight { .. }
        | Outcome::Delayed { .. }
        | Outcome::Waiting { .. }
        | Outcome::Held { .. }
        | Outcome::Draining { .. } => 2,
        Outcome::Released { .. }
        | Outcome::Failed
        | Outcome::Dead { .. }
        | Outcome::Abandoned
        | Outcome::LeaseLost
        | Outcome::Cancelled => 3,
        _ => 4,
    }
}
