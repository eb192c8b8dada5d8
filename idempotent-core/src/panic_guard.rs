//! Guards against panics in user code. They catch nothing in a program that is compiled with `panic = "abort"`.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a hook of the user, and returns its value, or `None` if the hook panics. State that a panicking hook has left inconsistent
/// belongs to the hook alone.
pub fn catch_panic<T>(hook: &'static str, code: impl FnOnce() -> T) -> Option<T> {
    caught(code, || log_panic(hook))
}

/// A guard of a hook that is called often. It logs only the first panic.
#[derive(Debug)]
pub struct HookGuard {
    hook: &'static str,
    has_panicked: AtomicBool,
}

impl HookGuard {
    /// Returns a guard of the hook with this name.
    pub fn new(hook: &'static str) -> Self {
        Self { hook, has_panicked: AtomicBool::new(false) }
    }

    /// Runs the hook, and returns its value, or `None` if the hook panics.
    pub fn catch<T>(&self, code: impl FnOnce() -> T) -> Option<T> {
        caught(code, || {
            if !self.has_panicked.swap(true, Ordering::Relaxed) {
                log_panic(self.hook);
            }
        })
    }
}

fn caught<T>(code: impl FnOnce() -> T, log: impl FnOnce()) -> Option<T> {
    let panic = match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => return Some(value),
        Err(panic) => panic,
    };
    // The hook may be a subscriber of the log. The payload of a panic is a value of the user, too.
    drop(catch_unwind(AssertUnwindSafe(|| {
        log();
        drop(panic);
    })));
    None
}

/// Logs without the text of the panic, which may contain data of the application.
fn log_panic(hook: &'static str) {
    tracing::error!(target: "idempotent", hook, "a hook panicked; the run goes on without it");
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("the payload");
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_is_caught_too() {
        let guard = HookGuard::new("test");
        let caught = guard.catch(|| std::panic::panic_any(PanicsAgain));
        assert_eq!((caught, guard.catch(|| 7), catch_panic("test", || 8)), (None::<u32>, Some(7), Some(8)));
    }
}
