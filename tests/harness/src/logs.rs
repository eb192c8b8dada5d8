//! The log of one test.
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// A subscriber of one thread, until this value is dropped.
#[derive(Debug)]
pub struct Logs {
    _default: DefaultGuard,
    _second: Dispatch,
}

/// Passes what this thread logs to a subscriber.
///
/// With a single subscriber in the process, tracing-core 0.1.36 asks the thread that reaches a call site first. If that
/// is another test, which has no subscriber, the call site stays disabled for all threads. A second subscriber prevents this.
pub fn logs_to(subscriber: impl Subscriber + Send + Sync + 'static) -> Logs {
    let second = Dispatch::new(NoSubscriber::new());
    Logs { _default: set_default(subscriber), _second: second }
}

/// A subscriber that keeps each event and each span in one line: its target, its level, and its fields as `name=value`. Its
/// clones have the same lines.
#[derive(Clone, Debug, Default)]
pub struct LogLines(Arc<Mutex<String>>);

impl LogLines {
    /// Returns all lines so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, metadata: &Metadata<'_>, fields: impl FnOnce(&mut Line)) {
        let mut line = Line(format!("{} {}", metadata.target(), metadata.level()));
        fields(&mut line);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += &(line.0 + "\n");
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // A string takes each text.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add(span.metadata(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += &(line.0 + "\n");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.add(event.metadata(), |line| event.record(line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
