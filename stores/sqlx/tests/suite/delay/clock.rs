//! A clock that a test moves.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Clock, Timer, Timestamp};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Moved {
    start: Instant,
    passed: watch::Sender<Duration>,
}

impl Moved {
    pub(crate) const START: u64 = 1_750_000_000_000_000;

    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), passed: watch::Sender::new(Duration::ZERO) })
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.passed.send_modify(|passed| *passed += by);
    }

    /// Returns the time at this duration after the start.
    pub(crate) fn at(after: Duration) -> Timestamp {
        Timestamp(Self::START) + after
    }
}

impl Clock for Moved {
    fn now(&self) -> Instant {
        self.start + *self.passed.borrow()
    }

    fn wall(&self) -> Timestamp {
        Self::at(*self.passed.borrow())
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        let (mut passed, start) = (self.passed.subscribe(), self.start);
        Box::pin(async move {
            if passed.wait_for(|passed| start + *passed >= deadline).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
