//! The executor's observer, whose panics are caught.
use std::sync::Arc;

use tracing::Span;

use super::{Event, Observer, RunInfo};
use crate::panic_guard::HookGuard;

/// The observer of an executor. A panic in it would end a run midway, and abort the process if a dropped run is reported.
#[derive(Debug)]
pub(crate) struct GuardedObserver {
    observer: Arc<dyn Observer>,
    guard: HookGuard,
    /// True if the observer wants the events that need a clock reading.
    pub(crate) is_timed: bool,
}

impl GuardedObserver {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        let guard = HookGuard::new("observer");
        let is_timed = guard.catch(|| observer.wants_timing()).unwrap_or_default();
        Arc::new(Self { observer, guard, is_timed })
    }

    /// Reports an event, in the span of its run if there is one.
    pub(crate) fn on(&self, span: Option<&Span>, run: &RunInfo<'_>, event: &Event<'_>) {
        let on = || self.observer.on(run, event);
        self.guard.catch(|| match span {
            Some(span) => span.in_scope(on),
            None => on(),
        });
    }
}
