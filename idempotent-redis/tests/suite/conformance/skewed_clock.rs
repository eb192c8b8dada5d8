//! A clock that runs at the right speed and shows the wrong time.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Clock, SystemClock, Timer, Timestamp};

#[derive(Debug)]
pub(crate) struct Wrong {
    clock: SystemClock,
    wall: fn(Timestamp) -> Timestamp,
}

const BY: Duration = Duration::from_secs(300);

impl Wrong {
    pub(crate) fn ahead() -> Arc<Self> {
        Arc::new(Self { clock: SystemClock::new(), wall: |wall| wall + BY })
    }

    pub(crate) fn behind() -> Arc<Self> {
        let behind = |wall: Timestamp| Timestamp(wall.0 - u64::try_from(BY.as_micros()).unwrap());
        Arc::new(Self { clock: SystemClock::new(), wall: behind })
    }
}

impl Clock for Wrong {
    fn now(&self) -> Instant {
        self.clock.now()
    }
    fn wall(&self) -> Timestamp {
        (self.wall)(self.clock.wall())
    }
    fn sleep_until(&self, deadline: Instant) -> Timer {
        self.clock.sleep_until(deadline)
    }
}
