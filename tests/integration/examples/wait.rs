//! Waiting for an event, with a limit.
use std::time::{Duration, Instant};

/// Waits until it happens, for as long as a busy machine may need.
#[track_caller]
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < Duration::from_secs(120), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
