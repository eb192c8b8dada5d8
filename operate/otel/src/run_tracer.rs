//! The observer that completes the spans of runs.
use std::sync::Arc;

use idempotent_core::{Event, Observer, Outcome, RunInfo};
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::attributes::{TARGET, set_outcome, set_status};
use crate::recent_runs::{DEFAULT_RUNS, RecentRuns};

/// An observer that adds the outcome of each run to its span, and links duplicates to the span of the first run.
///
/// Set the tracer at the executor, together with [`Tracing`](idempotent_core::Tracing). The executor gives each run a span with the
/// name `idempotent` at level debug, which is a child of the current span. If a filter disables that span, the tracer adds the
/// attributes and links to the current span of the caller, such as the span of an HTTP server.
///
/// # Links
/// The tracer keeps the spans of the [recent runs](Self::recent_runs) of this process. A link has the attribute `idempotent.link`:
///
/// | value | from | to |
/// |---|---|---|
/// | `first_run` | a duplicate | the run that consumed the key, or that is in flight in this process |
/// | `previous_owner` | a run that took over an expired lease | the run that lost the lease |
/// | `last_run` | a delivery of a dead key | the last run of the key |
///
/// A duplicate has no link if another process ran the key, if the process has restarted, or if the run is not recent or was not
/// sampled. The attribute `idempotent.key_hash` finds all spans of a key, in all processes.
///
/// Use one tracer for each store. Clones share the recent runs.
#[derive(Clone, Debug)]
#[must_use]
pub struct RunTracer(Arc<RecentRuns>);

impl Default for RunTracer {
    fn default() -> Self {
        Self(Arc::new(RecentRuns::new(DEFAULT_RUNS)))
    }
}

impl RunTracer {
    /// Creates a tracer with the default number of recent runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of runs whose spans the tracer keeps, about 150 bytes each. With 0, duplicates have no links.
    ///
    /// # Default
    /// 10,000
    pub fn recent_runs(self, most: usize) -> Self {
        Self(Arc::new(RecentRuns::new(most)))
    }

    fn ended(&self, run: &RunInfo<'_>, outcome: &Outcome) {
        let span = Span::current();
        set_outcome(&span, outcome, run.key, run.attempt);
        span.set_attribute("idempotent.scene", run.scene.as_str().to_owned());
        span.set_attribute("idempotent.scope", run.scope.to_owned());
        // The status of a caller's own span belongs to the caller.
        if span.metadata().is_some_and(|span| span.target() == TARGET) {
            set_status(&span, outcome);
        }
        let Some(key) = run.key else { return };
        match (run.fencing, outcome) {
            (Some(own), _) => self.0.ended(key, own),
            (None, Outcome::InFlight { .. }) => link(&span, self.0.running(key), "first_run"),
            (None, Outcome::Dead { fencing }) => link(&span, self.0.by_fencing(key, *fencing), "last_run"),
            (None, _) => {}
        }
    }
}

impl Observer for RunTracer {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        match (event, run.key) {
            (Event::Claimed { taken_over }, Some(key)) => {
                let span = Span::current();
                if let Some(previous) = taken_over {
                    link(&span, self.0.by_fencing(key, *previous), "previous_owner");
                }
                if let Some(own) = run.fencing {
                    self.0.started(key, own, span.context().span().span_context());
                }
            }
            (Event::FoundConsumed { fencing }, Some(key)) => {
                link(&Span::current(), self.0.by_fencing(key, *fencing), "first_run");
            }
            (Event::Ended { outcome, .. }, _) => self.ended(run, outcome),
            _ => {}
        }
    }
}

fn link(span: &Span, to: Option<SpanContext>, why: &'static str) {
    if let Some(to) = to {
        span.add_link_with_attributes(to, vec![KeyValue::new("idempotent.link", why)]);
    }
}
