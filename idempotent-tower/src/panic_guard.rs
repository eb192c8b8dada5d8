//! The user's code that runs once the handler is done: a panic in it must not undo what is done.
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `hook` comes to; `None` if it panics. Whatever it left half done is used no more.
pub(crate) fn caught<T>(name: &'static str, hook: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(hook)).map_err(|_| panicked(name)).ok()
}

/// Tells the log. What the panic said may hold an answer, and is not repeated.
pub(crate) fn panicked(name: &'static str) {
    tracing::error!(target: "idempotent", hook = name, "a hook panicked behind a handler that is done");
}
