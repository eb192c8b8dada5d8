//! The spans of recent runs of this process, as targets of links.
use idempotent_core::{FencingToken, Key};
use opentelemetry::trace::{SpanContext, TraceState};
use quick_cache::sync::Cache;

/// The default number of runs.
pub(crate) const DEFAULT_RUNS: usize = 10_000;

/// A bounded map from keys to the spans of their last runs.
///
/// A duplicate is linked only to the run with the fencing token that the store reports, so an entry that became stale, because
/// another process ran the key later, is never the target of a wrong link.
#[derive(Debug)]
pub(crate) struct RecentRuns(Cache<u128, RecentRun>);

#[derive(Clone, Debug)]
struct RecentRun {
    fencing: FencingToken,
    /// The span, without the trace state, which has no fixed size.
    context: SpanContext,
    is_running: bool,
}

impl RecentRuns {
    pub(crate) fn new(most: usize) -> Self {
        Self(Cache::new(most))
    }

    /// Records the span of a run that starts. A span that is not sampled is never exported, so it is not recorded.
    pub(crate) fn started(&self, key: &Key, fencing: FencingToken, context: &SpanContext) {
        if context.is_valid() && context.is_sampled() {
            let flags = context.trace_flags();
            let context = SpanContext::new(context.trace_id(), context.span_id(), flags, false, TraceState::default());
            self.0.insert(key.hash(), RecentRun { fencing, context, is_running: true });
        }
    }

    /// Records that the run has ended.
    pub(crate) fn ended(&self, key: &Key, fencing: FencingToken) {
        if let Some(run) = self.0.get(&key.hash()).filter(|run| run.fencing == fencing) {
            self.0.insert(key.hash(), RecentRun { is_running: false, ..run });
        }
    }

    /// Returns the span of the run with this fencing token.
    pub(crate) fn by_fencing(&self, key: &Key, fencing: FencingToken) -> Option<SpanContext> {
        let run = self.0.get(&key.hash()).filter(|run| run.fencing == fencing)?;
        Some(run.context)
    }

    /// Returns the span of the run that is in progress in this process.
    pub(crate) fn running(&self, key: &Key) -> Option<SpanContext> {
        let run = self.0.get(&key.hash()).filter(|run| run.is_running)?;
        Some(run.context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Identity, Scene};
    use opentelemetry::trace::{SpanId, TraceFlags, TraceId};

    use super::*;

    #[test]
    fn a_run_is_in_progress_until_it_has_ended_itself() {
        let key = Identity::new(Scene::Mq, "orders", "1").key("idempotent").unwrap();
        let flags = TraceFlags::SAMPLED;
        let context = SpanContext::new(TraceId::from(1), SpanId::from(2), flags, false, TraceState::default());
        let runs = RecentRuns::new(10);
        runs.started(&key, FencingToken(7), &context);
        runs.ended(&key, FencingToken(6));
        assert_eq!(runs.running(&key), Some(context.clone()), "an earlier run has ended");
        runs.ended(&key, FencingToken(7));
        assert_eq!((runs.running(&key), runs.by_fencing(&key, FencingToken(7))), (None, Some(context)));
        assert_eq!(runs.by_fencing(&key, FencingToken(6)), None);
    }
}
