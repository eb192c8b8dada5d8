//! Clocks. Only this module reads the system time.
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use crate::Timestamp;

/// The future of a timer, which ends at its deadline.
pub type Timer = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Supplies the current time and timers to an [`Executor`](crate::Executor), and to stores without a server clock.
///
/// Use [`SystemClock`] in production. The test kit's `VirtualClock` advances only when a test moves it. Implement all
/// methods from one source of time, because [`now`](Self::now) decides when a lease ends and
/// [`sleep_until`](Self::sleep_until) wakes the executor for it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns a monotonic time. It measures durations in this process and is never compared with a record's times.
    fn now(&self) -> Instant;

    /// Returns the time in µs since 1970, for stores without a clock of their own. It must not go back either.
    fn wall(&self) -> Timestamp;

    /// Returns a timer that ends at `deadline`, or at once if `deadline` has passed.
    ///
    /// # Cancellation
    /// Dropping the timer cancels it.
    fn sleep_until(&self, deadline: Instant) -> Timer;

    /// Returns whether the clock shows real time on every thread, so that leases may be renewed on a separate thread.
    /// Renewals then continue while a handler blocks its runtime.
    ///
    /// # Default
    /// `false`: leases are renewed on the runtime of their runs.
    fn is_real_time(&self) -> bool {
        false
    }
}

/// The system's clock, with tokio's timers.
///
/// On Linux, a monotonic clock does not advance while a virtual machine is suspended. After that, [`wall`](Clock::wall)
/// lags by the time of the suspension until the process restarts. Records in memory and local caches then live longer
/// by the same time. Stores with a server use the server's clock.
///
/// Under tokio's paused time (`start_paused`), this clock stops with tokio. Use paused time with the memory store only,
/// because paused time advances on its own while another store works on another thread.
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: Instant,
    epoch: Timestamp,
}

impl SystemClock {
    /// Creates a clock and reads the wall clock once.
    ///
    /// [`Clock::wall`] adds the elapsed monotonic time to that reading, so that a step of the wall clock cannot move a
    /// lease.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { start: tokio::time::Instant::now().into_std(), epoch: Timestamp(0) + since_1970 }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> Timestamp {
        self.epoch + self.now().saturating_duration_since(self.start)
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        Box::pin(tokio::time::sleep_until(deadline.into()))
    }

    /// Returns false on a runtime whose time is paused.
    fn is_real_time(&self) -> bool {
        let before = Instant::now();
        let now = self.now();
        before <= now && now <= Instant::now()
    }
}

/// Returns the output of `future`, or `None` if `deadline` comes first.
pub(crate) async fn before<F: Future>(clock: &dyn Clock, deadline: Instant, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = clock.sleep_until(deadline) => None,
    }
}

/// Returns the output of `future`, or an error with the output of `end` if that comes first.
///
/// The function calls `end` only if `future` is pending, because `end` is allocated on the heap. A store in this
/// process answers at once and should not pay for timers.
pub(crate) async fn unless<F: Future, G: Future>(future: F, end: impl Fn() -> G) -> Result<F::Output, G::Output> {
    let (mut future, mut ending) = (pin!(future), None);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => ending.get_or_insert_with(|| Box::pin(end())).as_mut().poll(context).map(Err),
    })
    .await
}

/// Returns `now` plus `by`, or a time 100 years ahead if the sum exceeds an [`Instant`].
pub(crate) fn later(now: Instant, by: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    now.checked_add(by).unwrap_or_else(|| now + FAR)
}

/// Waits for the duration `pause` by `clock`.
pub(crate) async fn pause(clock: &dyn Clock, pause: Duration) {
    clock.sleep_until(clock.now() + pause).await;
}
