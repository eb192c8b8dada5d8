//! The default observer: one span for each run, and one event at its end.
use tracing::{Span, debug, error, field, info, warn};

use super::{Event, Observer, RunInfo};
use crate::{Outcome, Scene, StoreErrorKind};

/// An observer that writes to `tracing` under the target `idempotent`.
///
/// Successful runs are logged at debug, deferred calls at info, problems that need attention at warn, and errors that
/// may lose or repeat an effect at error. Keys appear only as hashes, and results never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

/// Creates the span of a run, or returns `None` if the span is disabled. Empty fields are recorded as they become
/// known.
pub(crate) fn span(scene: &Scene, scope: &str) -> Option<Span> {
    let span = tracing::debug_span!(
        target: "idempotent",
        "idempotent",
        scene = scene.as_str(),
        scope,
        key = field::Empty,
        attempt = field::Empty,
        fencing = field::Empty,
        outcome = field::Empty,
    );
    (!span.is_disabled()).then_some(span)
}

/// Reports a successful run to `tracing`, for the benchmark.
pub fn trace(scene: &Scene, scope: &str, key: &crate::Key) {
    let span = span(scene, scope);
    assert!(span.is_none(), "the benchmark measures disabled spans only");
    std::hint::black_box(key);
    let run = RunInfo::new(scene, scope, Some(key));
    let ended = Event::Ended { outcome: &Outcome::Ran, elapsed: std::time::Duration::ZERO };
    for event in [Event::Claimed { taken_over: None }, ended] {
        std::hint::black_box(&Tracing as &dyn Observer).on(&run, &event);
    }
}

impl Observer for Tracing {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let key = run.key.map(field::display);
        match event {
            Event::Claimed { taken_over } => {
                if let Some(previous) = taken_over {
                    warn!(target: "idempotent", scope = run.scope, key, %previous,
                        "took over an expired lease: the effect of the previous run may have happened");
                }
            }
            Event::StoreFailed { step, error } => {
                warn!(target: "idempotent", scope = run.scope, key, step, error = *error as &(dyn std::error::Error + 'static),
                    "store request failed");
            }
            Event::SettledLate { step, error: None } => {
                info!(target: "idempotent", scope = run.scope, key, step, "settlement completed in the background");
            }
            Event::SettledLate { step, error: Some(error) } => {
                warn!(target: "idempotent", scope = run.scope, key, step, error = *error as &(dyn std::error::Error + 'static),
                    "settlement in the background failed; the key is held until its lease expires");
            }
            Event::LeaseLost => {
                warn!(target: "idempotent", scope = run.scope, key, "lease lost while the handler was running");
            }
            Event::RuntimeBlocked { blocked } => {
                warn!(target: "idempotent", scope = run.scope, key, ?blocked,
                    "runtime blocked by a handler; move blocking code to `tokio::task::spawn_blocking`");
            }
            Event::OrderBroken { why, skipped } => {
                let what =
                    if *skipped { "order broken: running the call out of order" } else { "order broken: call not run" };
                warn!(target: "idempotent", scope = run.scope, key, %why, "{what}");
            }
            Event::StepsParked { error } => {
                warn!(target: "idempotent", scope = run.scope, key, error, "the run is parked: check the effects of its steps, and forget the key");
            }
            Event::RunsUnprotected => {
                error!(target: "idempotent", scope = run.scope, key, "store unavailable: running without protection, duplicates run too");
            }
            Event::ResultNotKept { reason } => {
                warn!(target: "idempotent", scope = run.scope, key, reason, "result not stored for replay");
            }
            Event::Ended { outcome, elapsed } => ended(run, outcome, *elapsed),
            Event::FoundConsumed { .. }
            | Event::HandlerStarted
            | Event::HandlerEnded { .. }
            | Event::StoreAnswered { .. } => {}
        }
    }
}

fn ended(run: &RunInfo<'_>, outcome: &Outcome, elapsed: std::time::Duration) {
    let (scene, scope, key) = (run.scene.as_str(), run.scope, run.key.map(field::display));
    let name = outcome.name();
    match outcome {
        Outcome::Ran | Outcome::Replayed | Outcome::ConsumedWithoutResult | Outcome::Duplicate => {
            debug!(target: "idempotent", scene, scope, key, outcome = name, ?elapsed, "ended");
        }
        Outcome::Released { .. }
        | Outcome::InFlight { .. }
        | Outcome::Delayed { .. }
        | Outcome::Waiting { .. }
        | Outcome::Draining { .. }
        // A consumer defers many deliveries while a node is down, and warns once.
        | Outcome::StoreDown(StoreErrorKind::Busy)
        | Outcome::Cancelled => {
            info!(target: "idempotent", scene, scope, key, outcome = name, ?elapsed, "ended");
        }
        Outcome::Unrecorded | Outcome::Unprotected | Outcome::NoExecutor | Outcome::Misconfigured => {
            error!(target: "idempotent", scene, scope, key, outcome = name, ?elapsed, "ended");
        }
        Outcome::Abandoned
        | Outcome::LeaseLost
        | Outcome::Held { .. }
        | Outcome::StoreDown(_)
        | Outcome::Failed
        | Outcome::Dead { .. }
        | Outcome::Mismatch
        | Outcome::BadKey
        | Outcome::Nested => {
            warn!(target: "idempotent", scene, scope, key, outcome = name, ?elapsed, "ended");
        }
    }
}
