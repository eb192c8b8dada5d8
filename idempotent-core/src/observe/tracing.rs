//! The observer that comes built in: one span for each run, one event at its end.
use tracing::{Span, debug, error, field, info, warn};

use super::{Event, Observer, Run};
use crate::{Outcome, Scene};

/// Writes runs to `tracing` under the target `idempotent`: what is well at debug, what was put off at info, what
/// needs a look at warn, what may lose or repeat an effect at error. Keys only as hashes; results never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

/// The run's span, if anybody wants it; its empty fields are filled as they become known.
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

/// For the benchmark: what a run that goes well asks of `tracing`.
pub fn trace(scene: &Scene, scope: &str, key: &crate::Key) {
    let span = span(scene, scope);
    assert!(span.is_none(), "a span that is wanted costs more");
    std::hint::black_box(key);
    let run = Run::new(scene, scope, Some(key));
    let ended = Event::Ended { outcome: &Outcome::Ran, elapsed: std::time::Duration::ZERO };
    for event in [Event::Claimed { taken_over: None }, ended] {
        std::hint::black_box(&Tracing as &dyn Observer).on(&run, &event);
    }
}

impl Observer for Tracing {
    fn on(&self, run: &Run<'_>, event: &Event<'_>) {
        let key = run.key.map(field::display);
        match event {
            Event::Claimed { taken_over } => {
                if let Some(previous) = taken_over {
                    warn!(target: "idempotent", scope = run.scope, key, %previous,
                        "taken over: the last run let its lease run out, its effect may have happened");
                }
            }
            Event::StoreFailed { step, error } => {
                warn!(target: "idempotent", scope = run.scope, key, step, error = *error as &(dyn std::error::Error + 'static),
                    "the store failed");
            }
            Event::SettledLate { step, error: None } => {
                info!(target: "idempotent", scope = run.scope, key, step, "settled in the background");
            }
            Event::SettledLate { step, error: Some(error) } => {
                warn!(target: "idempotent", scope = run.scope, key, step, error = *error as &(dyn std::error::Error + 'static),
                    "the settlement in the background failed");
            }
            Event::LeaseLost => {
                warn!(target: "idempotent", scope = run.scope, key, "the lease was lost while the handler ran");
            }
            Event::RuntimeBlocked { blocked } => {
                warn!(target: "idempotent", scope = run.scope, key, ?blocked,
                    "the runtime is blocked: run blocking code in tokio::task::spawn_blocking");
            }
            Event::OrderBroken { why, skipped } => {
                let what = if *skipped { "run out of order" } else { "not run: the order is broken" };
                warn!(target: "idempotent", scope = run.scope, key, %why, "{what}");
            }
            Event::StepsParked { error } => {
                warn!(target: "idempotent", scope = run.scope, key, error, "the run is parked: a person has to look at its steps");
            }
            Event::RunsUnprotected => {
                error!(target: "idempotent", scope = run.scope, key, "the store is down: running without protection");
            }
            Event::ResultNotKept { reason } => {
                warn!(target: "idempotent", scope = run.scope, key, reason, "the result is not kept for replay");
            }
            Event::Ended { outcome, elapsed } => ended(run, outcome, *elapsed),
        }
    }
}

fn ended(run: &Run<'_>, outcome: &Outcome, elapsed: std::time::Duration) {
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
