//! Guards against panics in user code that runs after the handler. Such a panic must not undo a completed request.
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `hook` and returns its value, or `None` if it panics. State that a panicking hook has left inconsistent is not
/// used again.
pub fn catch_panic<T>(name: &'static str, hook: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(hook)).map_err(|_| log_panic(name)).ok()
}

/// Logs that a hook panicked. The log omits the panic message, which may contain response data.
pub(crate) fn log_panic(name: &'static str) {
    tracing::error!(target: "idempotent", hook = name, "a hook panicked after its handler completed; the request counts as done");
}
