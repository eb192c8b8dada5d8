//! The timers of a virtual clock.
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Time;

/// The position of a timer: by deadline, then by order of creation.
type Place = (Duration, u64);

#[derive(Default)]
pub(super) struct Timers {
    pub(super) elapsed: Duration,
    made: u64,
    waiting: BTreeMap<Place, Option<Waker>>,
}

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Moves the time forward only, since two tasks may move the clock.
    pub(super) fn move_to(&mut self, elapsed: Duration) {
        self.elapsed = self.elapsed.max(elapsed);
    }

    /// Removes the first timer due by `target`, and moves the time to its deadline.
    pub(super) fn take_due(&mut self, target: Duration) -> Option<Option<Waker>> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= target)?;
        let ((deadline, _), waker) = first.remove_entry();
        self.move_to(deadline);
        Some(waker)
    }
}

pub(super) struct Sleep {
    time: Arc<Time>,
    place: Place,
}

impl Sleep {
    /// Creates the timer, which counts from now on, polled or not.
    pub(super) fn new(time: Arc<Time>, deadline: Duration) -> Self {
        let mut timers = time.timers();
        let place = (deadline, timers.made);
        timers.made += 1;
        if deadline > timers.elapsed {
            timers.waiting.insert(place, None);
        }
        drop(timers);
        Self { time, place }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.time.timers().waiting.get_mut(&self.place) {
            Some(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.time.timers().waiting.remove(&self.place);
    }
}
