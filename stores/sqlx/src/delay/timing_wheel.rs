//! A timing wheel for the due times of a delay table.
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio_util::time::DelayQueue;

/// The due times within a window, on a hierarchical timing wheel. One timer of the runtime serves all of them, and no
/// query runs between two times. The tasks themselves are read when their time has come.
#[derive(Debug, Default)]
pub(super) struct TimingWheel {
    times: DelayQueue<()>,
}

impl TimingWheel {
    pub(super) fn clear(&mut self) {
        self.times.clear();
    }

    pub(super) fn put(&mut self, at: Instant) {
        self.times.insert_at((), at.into());
    }

    /// Completes when at least one time has passed, and forgets all times that have passed. Never completes while the
    /// wheel is empty.
    pub(super) async fn expired(&mut self) {
        poll_fn(|context| if self.passed(context) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn passed(&mut self, context: &mut Context<'_>) -> bool {
        let mut passed = false;
        while let Poll::Ready(Some(_)) = self.times.poll_expired(context) {
            passed = true;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn no_time_comes_early_or_twice_and_what_was_forgotten_does_not_come() {
        let start = Instant::now();
        let mut wheel = TimingWheel::default();
        for millis in [60, 30, 5, 30] {
            wheel.put(start + Duration::from_millis(millis));
        }
        let mut turns = 0;
        for due in [5, 30, 60].map(Duration::from_millis) {
            // On a loaded machine, several times pass together.
            if wheel.times.is_empty() {
                break;
            }
            wheel.expired().await;
            turns += 1;
            assert!(start.elapsed() >= due, "{:?} is before {due:?}", start.elapsed());
        }
        assert!(turns > 0 && wheel.times.is_empty(), "one turn for each time, and one for two of the same");
        wheel.put(Instant::now());
        wheel.clear();
        let none = tokio::time::timeout(Duration::from_millis(50), wheel.expired()).await;
        assert!(none.is_err(), "there is none");
    }
}
