//! A timing wheel in front of the table.
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio_util::time::DelayQueue;

/// The times of what is due within a window, on a hierarchical timing wheel: one timer of the runtime's for all of them, and no
/// question to the database between two that come. What they belong to is asked for when they come.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    times: DelayQueue<()>,
}

impl Wheel {
    pub(super) fn clear(&mut self) {
        self.times.clear();
    }

    pub(super) fn put(&mut self, at: Instant) {
        self.times.insert_at((), at.into());
    }

    /// Ends when at least one time has come, and forgets all that have; never while there is none.
    pub(super) async fn turned(&mut self) {
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

    #[tokio::test(start_paused = true)]
    async fn times_come_in_order_and_those_that_came_together_come_once() {
        let now = || tokio::time::Instant::now().into_std();
        let start = now();
        let mut wheel = Wheel::default();
        for millis in [70_000, 30, 5, 30, 400] {
            wheel.put(start + Duration::from_millis(millis));
        }
        let mut came = Vec::new();
        for _ in 0..4 {
            wheel.turned().await;
            came.push((now() - start).as_millis());
        }
        let late: Vec<_> = came.iter().zip([5, 30, 400, 70_000]).map(|(came, due)| came - due).collect();
        assert!(late.iter().all(|late| *late <= 1), "{came:?}");
        wheel.put(now() + Duration::from_millis(1));
        wheel.clear();
        assert!(tokio::time::timeout(Duration::from_secs(9), wheel.turned()).await.is_err(), "there is none");
    }
}
