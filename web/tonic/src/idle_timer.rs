//! The limit of a pause in a body.
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use idempotent_core::{Clock, Timer};

/// A timer that starts when a body is pending and stops at its next frame.
pub(crate) struct IdleTimer {
    clock: Arc<dyn Clock>,
    after: Duration,
    timer: Option<Timer>,
}

impl IdleTimer {
    pub(crate) fn new(clock: Arc<dyn Clock>, after: Duration) -> Self {
        Self { clock, after, timer: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { clock, after, timer } = self;
        timer.get_or_insert_with(|| clock.sleep_until(clock.now() + *after)).as_mut().poll(cx)
    }

    pub(crate) fn stop(&mut self) {
        self.timer = None;
    }
}
