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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use idempotent_testkit::VirtualClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_frame_starts_the_limit_again() {
        let clock = VirtualClock::new();
        let mut idle = IdleTimer::new(Arc::new(clock.clone()), 30 * SECOND);
        let mut is_over = || idle.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_over());
        clock.advance(20 * SECOND).await;
        idle.stop();
        let mut is_over = || idle.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_over());
        clock.advance(20 * SECOND).await;
        assert!(!is_over());
        clock.advance(10 * SECOND).await;
        assert!(is_over());
    }
}
