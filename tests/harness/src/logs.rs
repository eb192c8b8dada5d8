//! The log of one test.
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Subscriber};

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
