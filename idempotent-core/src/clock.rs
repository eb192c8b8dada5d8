//! Time as it is handed in: nothing else in this crate asks the system what time it is.
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use crate::Micros;

/// The future of a timer; ends when its deadline has come.
pub type Timer = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Supplies now and timers to an [`Executor`](crate::Executor) and to stores without a server clock.
///
/// [`SystemClock`] is the one to run with; the test kit's `VirtualClock` stands still until a test
/// moves it. Implement all three methods from one source of time: a lease is guarded by
/// [`now`](Self::now) and woken by [`sleep_until`](Self::sleep_until).
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Never goes back. Measures durations on this side only; it is not compared with a record's times.
    fn now(&self) -> Instant;

    /// µs since 1970 for stores that have no clock of their own. Must not go back either.
    fn wall(&self) -> Micros;

    /// Ends at `deadline`; at once if that has passed.
    ///
    /// # Cancellation
    /// Dropping the timer forgets it.
    fn sleep_until(&self, deadline: Instant) -> Timer;

    /// Returns true if the clock shows real time on every thread, so that leases may be renewed on a thread of their
    /// own. Renewals then go on while a handler blocks its runtime.
    ///
    /// # Default
    /// `false`: leases are renewed on the runtime of their runs.
    fn is_real_time(&self) -> bool {
        false
    }
}

/// The machine's clock, with tokio's timers.
///
/// On Linux, a monotonic clock does not advance while a virtual machine is suspended. After that, [`wall`](Clock::wall) lags by
/// the time of the suspension until the process restarts. Records in memory and local caches last that much longer; stores
/// with a server go by the server's clock.
///
/// Under tokio's paused time (`start_paused`) it stands still with tokio. Use that with the memory store
/// only: paused time runs ahead while a store works on another thread.
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: Instant,
    epoch: Micros,
}

impl SystemClock {
    /// Reads the wall clock once; from then on [`Clock::wall`] is that plus what has passed, so that a
    /// step of the wall clock cannot move a lease.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { start: tokio::time::Instant::now().into_std(), epoch: Micros(0) + since_1970 }
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

    fn wall(&self) -> Micros {
        self.epoch + self.now().saturating_duration_since(self.start)
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        Box::pin(tokio::time::sleep_until(deadline.into()))
    }

    /// False on a runtime whose time is paused.
    fn is_real_time(&self) -> bool {
        let before = Instant::now();
        let now = self.now();
        before <= now && now <= Instant::now()
    }
}

/// `future`, or `None` if `deadline` comes first.
pub(crate) async fn before<F: Future>(clock: &dyn Clock, deadline: Instant, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = clock.sleep_until(deadline) => None,
    }
}

/// What `future` comes to, or what ends the waiting for it. That is made, on the heap, only once there is something to
/// wait for: a store in this process answers at once, and should not pay for timers.
pub(crate) async fn unless<F: Future, G: Future>(future: F, end: impl Fn() -> G) -> Result<F::Output, G::Output> {
    let (mut future, mut ending) = (pin!(future), None);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => ending.get_or_insert_with(|| Box::pin(end())).as_mut().poll(context).map(Err),
    })
    .await
}

/// `now` and then `by`; a time nobody lives to see where that is more than an [`Instant`] can say.
pub(crate) fn later(now: Instant, by: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    now.checked_add(by).unwrap_or_else(|| now + FAR)
}

/// Waits for `pause` by `clock`.
pub(crate) async fn pause(clock: &dyn Clock, pause: Duration) {
    clock.sleep_until(clock.now() + pause).await;
}
