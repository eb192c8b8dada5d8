//! The default clock of a backend.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use idempotent_core::{Clock, SystemClock, Timer, Timestamp};

/// The wall clock of the system, which is compared with the wall clocks of other machines.
///
/// [`SystemClock`] reads the wall clock only once, so a suspended virtual machine would lag until its restart.
#[derive(Debug)]
pub(crate) struct WallClock {
    timers: SystemClock,
    /// The latest time that was returned, in µs since 1970.
    latest: AtomicU64,
}

impl WallClock {
    pub(crate) fn new() -> Self {
        Self { timers: SystemClock::new(), latest: AtomicU64::new(0) }
    }

    /// Returns the time by which the latest returned time exceeds that of the system's clock.
    pub(crate) fn set_back_by(&self) -> Duration {
        self.ahead_of(now())
    }

    fn ahead_of(&self, time: Timestamp) -> Duration {
        Timestamp(self.latest.load(Relaxed)) - time
    }

    /// Returns the latest of this time and all earlier ones.
    fn not_before(&self, time: Timestamp) -> Timestamp {
        Timestamp(self.latest.fetch_max(time.0, Relaxed).max(time.0))
    }
}

fn now() -> Timestamp {
    Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

impl Clock for WallClock {
    fn now(&self) -> Instant {
        self.timers.now()
    }

    fn wall(&self) -> Timestamp {
        self.not_before(now())
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        self.timers.sleep_until(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_the_system_and_stays_while_the_system_goes_back() {
        let clock = WallClock::new();
        let before = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let read = clock.wall();
        assert!(read >= Timestamp(0) + before && read <= clock.wall());
        let corrected = read + Duration::from_secs(3_600);
        assert_eq!(clock.not_before(corrected), corrected, "a correction of the system's time");
        assert_eq!(clock.not_before(read), corrected, "a step back");
        assert_eq!(clock.wall(), corrected);
        assert_eq!((clock.ahead_of(read), clock.ahead_of(corrected)), (Duration::from_secs(3_600), Duration::ZERO));
        assert!(clock.set_back_by() > Duration::from_secs(3_000));
    }
}
