//! The metrics of each event and outcome, for those that short runs do not have, and the events that need a clock reading.
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    BrokenOrder, Call, Event, Executor, FencingToken, MemoryStore, Observer, Outcome, Policy, RunInfo, StoreErrorKind,
    Tracing,
};
use idempotent_metrics::MetricsObserver;

use crate::world::{World, identity, runs};

/// An observer that passes other events on at the end of a run, as if the run had emitted them.
struct Instead<F> {
    observer: MetricsObserver,
    events: F,
}

impl<F> fmt::Debug for Instead<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instead").field("observer", &self.observer).finish_non_exhaustive()
    }
}

impl<F: Fn(&mut dyn FnMut(&Event<'_>)) + Send + Sync + 'static> Observer for Instead<F> {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::Ended { .. } = event {
            (self.events)(&mut |event| self.observer.on(run, event));
        }
    }
}

/// Records these events for one run.
async fn record(world: &World, events: impl Fn(&mut dyn FnMut(&Event<'_>)) + Send + Sync + 'static) {
    let observer = Instead { observer: world.observer(), events };
    runs(&world.executor_with(Policy::new(), observer), Call::new(identity("1")), Ok(1)).await;
}

#[tokio::test]
async fn each_reason_of_a_broken_order_has_a_label() {
    let world = World::new();
    let reasons = [
        (BrokenOrder::Failed, "failed"),
        (BrokenOrder::Dead, "dead"),
        (BrokenOrder::Missing, "missing"),
        (BrokenOrder::Late, "late"),
    ];
    record(&world, move |on| reasons.iter().for_each(|(why, _)| on(&Event::OrderBroken { why: *why, skipped: false })))
        .await;
    for (_, why) in reasons {
        let labels = [&*format!("why=\"{why}\""), "skipped=\"false\""];
        assert_eq!(world.value("idempotent_order_broken_total", &labels), Some(1.0), "{why}");
    }
}

#[tokio::test]
async fn a_blocked_runtime_is_counted() {
    let world = World::new();
    record(&world, |on| on(&Event::RuntimeBlocked { blocked: Duration::from_secs(20) })).await;
    assert_eq!(world.value("idempotent_runtime_blocked_total", &["scope=\"orders\""]), Some(1.0));
}

#[tokio::test]
async fn each_outcome_belongs_to_one_class() {
    let retry_after = Duration::from_secs(1);
    let classes = [
        ("executed", vec![Outcome::Ran, Outcome::Unprotected]),
        ("duplicate", vec![Outcome::Replayed, Outcome::ConsumedWithoutResult, Outcome::Duplicate]),
        (
            "deferred",
            vec![
                Outcome::InFlight { retry_after },
                Outcome::Delayed { retry_after },
                Outcome::Waiting { retry_after },
                Outcome::Held { retry_after },
                Outcome::Draining { retry_after },
            ],
        ),
        (
            "failed",
            vec![
                Outcome::Released { retry_after },
                Outcome::Failed,
                Outcome::Dead { fencing: FencingToken(1) },
                Outcome::Abandoned,
                Outcome::LeaseLost,
                Outcome::Cancelled,
            ],
        ),
        (
            "error",
            vec![
                Outcome::Unrecorded,
                Outcome::StoreDown(StoreErrorKind::NotApplied),
                Outcome::NoExecutor,
                Outcome::Misconfigured,
                Outcome::Mismatch,
                Outcome::BadKey,
            ],
        ),
    ];
    for (class, outcomes) in classes {
        let (world, number) = (World::new(), outcomes.len() as f64);
        record(&world, move |on| {
            outcomes.iter().for_each(|outcome| on(&Event::Ended { outcome, elapsed: Duration::ZERO }));
        })
        .await;
        let runs = world.value("idempotent_run_duration_seconds_count", &[&format!("class=\"{class}\"")]);
        assert_eq!(runs, Some(number), "{class}");
    }
}

/// An observer that keeps the name of each event.
#[derive(Clone, Debug)]
struct Names {
    timed: bool,
    names: Arc<Mutex<Vec<&'static str>>>,
}

impl Observer for Names {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        self.names.lock().unwrap().push(match event {
            Event::Claimed { .. } => "claimed",
            Event::HandlerStarted => "started",
            Event::HandlerEnded { .. } => "handler ended",
            Event::StoreAnswered { step, .. } => step,
            Event::Ended { .. } => "ended",
            _ => "other",
        });
    }

    fn wants_timing(&self) -> bool {
        self.timed
    }
}

async fn names(timed: bool) -> Vec<&'static str> {
    let observer = Names { timed, names: Arc::default() };
    // A pair wants what one of both wants.
    let executor = Executor::builder(MemoryStore::new()).observer((Tracing, observer.clone())).build().unwrap();
    runs(&executor, Call::new(identity("1")), Ok(1)).await;
    observer.names.lock().unwrap().clone()
}

#[tokio::test]
async fn only_an_observer_that_wants_timing_gets_the_steps_of_a_run() {
    assert_eq!(names(false).await, ["claimed", "ended"]);
    assert_eq!(names(true).await, ["claim", "claimed", "started", "handler ended", "complete", "ended"]);
}
