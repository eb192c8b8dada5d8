//! The test kit for handlers: it accepts correct handlers, and reports the defects of others.
mod crash;
mod mock;
mod run_twice;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The key of handlers that take none.
const ONE: u32 = 1;

/// The text of the assertion that fails.
fn told(assertion: impl FnOnce()) -> String {
    text_of(catch_unwind(AssertUnwindSafe(assertion)).expect_err("the assertion was to fail"))
}

fn text_of(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
    }
}
