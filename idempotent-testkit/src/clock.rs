//! Time that stands still until a test moves it.
mod busy;
mod timers;

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idempotent_core::{Clock, Timer, Timestamp};
use tokio::runtime::{Handle, RuntimeFlavor};

pub use self::busy::{InFlightCalls, InFlightGuard};
use self::timers::{Sleep, Timers};
use crate::deliver::fail;

/// A [`Clock`] that stands still until a test moves it; clones are the same clock.
///
/// [`advance`](Self::advance) goes from one due timer to the next and lets everything that is ready run in
/// between, so heartbeats, waits and time limits happen at exactly their times. Each timer on the way costs about a
/// ms of real time. Both need a `current_thread` runtime, as `#[tokio::test]` has: there, and only there, settling means
/// that nothing is left to run. [`jump`](Self::jump) does not.
///
/// A store that works on another thread is waited for by its [`InFlightCalls`] count; wrap it in a
/// [`FaultStore`](crate::FaultStore), which keeps that count.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// use std::time::Duration;
/// use idempotent_core::Clock;
/// use idempotent_testkit::VirtualClock;
///
/// let clock = VirtualClock::new();
/// let timer = tokio::spawn(clock.sleep_until(clock.now() + Duration::from_secs(30)));
/// clock.advance(Duration::from_millis(29_999)).await;
/// assert!(!timer.is_finished());
/// clock.advance(Duration::from_millis(1)).await;
/// assert!(timer.is_finished());
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct VirtualClock {
    time: Arc<Time>,
    /// µs by which this handle's wall clock is ahead of the true one.
    wall_offset: Arc<AtomicI64>,
}

struct Time {
    /// An `Instant` cannot be made up, so this one is real; only differences from it are ever used.
    origin: Instant,
    wall_at_origin: Timestamp,
    timers: Mutex<Timers>,
    busy: InFlightCalls,
}

/// Yields of one round of settling. A wake-up is one yield away, and each yield runs up to 61 tasks, so this
/// is the longest chain of tasks waking each other that is seen through in one instant.
const ROUND: usize = 256;

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl VirtualClock {
    /// Where the wall clock starts: 2026-01-01 00:00 UTC.
    pub const START: Timestamp = Timestamp(1_767_225_600_000_000);

    /// A clock that starts at [`START`](Self::START).
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Self::START)
    }

    /// A clock whose wall clock starts somewhere else.
    #[must_use]
    pub fn starting_at(wall: Timestamp) -> Self {
        let time = Time {
            origin: Instant::now(),
            wall_at_origin: wall,
            timers: Mutex::default(),
            busy: InFlightCalls::default(),
        };
        Self { time: Arc::new(time), wall_offset: Arc::default() }
    }

    /// Time moved since the clock was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.timers().elapsed
    }

    /// Timers that have not fired and were not dropped.
    #[must_use]
    pub fn pending_timers(&self) -> usize {
        self.timers().len()
    }

    /// The same time and the same timers, but a wall clock that is wrong by `micros` (negative: behind): a
    /// client whose clock differs from the store's.
    #[must_use]
    pub fn skewed(&self, micros: i64) -> Self {
        Self { time: self.time.clone(), wall_offset: Arc::new(AtomicI64::new(micros)) }
    }

    /// From now on the wall clock of this handle and its clones is wrong by `micros`: somebody set it. May make
    /// it go back, which a [`Clock`] otherwise must not.
    pub fn set_wall_offset(&self, micros: i64) {
        self.wall_offset.store(micros, Ordering::SeqCst);
    }

    /// Counts as a call in flight until dropped: [`settle`](Self::settle) waits for it. Only for what ends
    /// without this clock being moved.
    pub fn busy(&self) -> InFlightGuard {
        self.time.busy.enter()
    }

    /// The count behind [`busy`](Self::busy), shared by all handles of this clock.
    #[must_use]
    pub fn busy_count(&self) -> InFlightCalls {
        self.time.busy.clone()
    }

    /// Moves time by `by`, stopping at every timer due on the way: it fires, everything settles, then time goes
    /// on. Timers fire in order of deadline, those of one deadline in the order they were made; timers made on
    /// the way fire too.
    ///
    /// # Panics
    /// On a multi-thread runtime: there a task on another thread may set its timer when time has gone by already, and
    /// would wait for ever.
    ///
    /// # Cancellation
    /// Dropped half-way, time stays where it has got to.
    pub async fn advance(&self, by: Duration) {
        require_one_thread();
        self.pass(by).await;
    }

    /// As [`advance`](Self::advance), on any runtime: for what only reads the time and sets no timer that anybody
    /// waits for, as a store in a law about races.
    pub(crate) async fn pass(&self, by: Duration) {
        // First let tasks that were just spawned set their timers, at the time they were spawned at.
        self.quiet().await;
        let target = self.elapsed().saturating_add(by);
        while self.fire_next(target) {
            self.quiet().await;
        }
        self.timers().move_to(target);
        self.quiet().await;
    }

    /// As [`advance`](Self::advance), but all timers of one instant fire before anything runs, so that what they wake
    /// runs side by side; until `timers` is used up, one for each.
    pub(crate) async fn advance_by_timers(&self, by: Duration, timers: &mut u64) {
        self.settle().await;
        let target = self.elapsed().saturating_add(by);
        while *timers > 0 && self.fire_next(target) {
            *timers -= 1;
            let now = self.elapsed();
            while self.fire_next(now) {
                *timers = timers.saturating_sub(1);
            }
            self.settle().await;
        }
        if *timers > 0 {
            self.timers().move_to(target);
        }
        self.settle().await;
    }

    /// By how many µs this handle's wall clock is wrong.
    pub(crate) fn wall_offset(&self) -> i64 {
        self.wall_offset.load(Ordering::SeqCst)
    }

    /// Moves time by `by` at one blow, as for a process that was stopped: all timers due on the way fire late.
    /// Nothing runs until the caller waits; see [`settle`](Self::settle).
    pub fn jump(&self, by: Duration) {
        let target = {
            let mut timers = self.timers();
            let target = timers.elapsed.saturating_add(by);
            timers.move_to(target);
            target
        };
        while self.fire_next(target) {}
    }

    /// Lets everything that is ready run, without moving time: until a whole round of yields finds no store
    /// call in flight.
    ///
    /// A call that waits for this clock and yet counts as in flight would be waited for for ever.
    ///
    /// # Panics
    /// On a multi-thread runtime, where this task does not see what the others do.
    pub async fn settle(&self) {
        require_one_thread();
        self.quiet().await;
    }

    async fn quiet(&self) {
        loop {
            let mut quiet = true;
            for _ in 0..ROUND {
                tokio::task::yield_now().await;
                quiet &= self.time.busy.is_idle();
            }
            if quiet {
                return;
            }
            self.time.busy.idle().await;
        }
    }

    /// Fires the first timer due by `target` and moves time to its deadline; false if there is none.
    fn fire_next(&self, target: Duration) -> bool {
        let due = self.timers().take_due(target);
        // Woken outside the lock: a waker may run anything.
        due.is_some_and(|waker| {
            if let Some(waker) = waker {
                waker.wake();
            }
            true
        })
    }

    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.time.timers()
    }
}

/// Called from within a task. No runtime at all is as good as one thread: whoever polls sees everything.
#[track_caller]
pub(crate) fn require_one_thread() {
    if Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread) {
        fail("VirtualClock needs a current_thread runtime, as `#[tokio::test]` has; here it is multi_thread");
    }
}

impl Time {
    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.time.origin + self.elapsed()
    }

    fn wall(&self) -> Timestamp {
        let true_wall = self.time.wall_at_origin + self.elapsed();
        Timestamp(true_wall.0.saturating_add_signed(self.wall_offset.load(Ordering::SeqCst)))
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        Box::pin(Sleep::new(self.time.clone(), deadline.saturating_duration_since(self.time.origin)))
    }
}

impl fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualClock")
            .field("elapsed", &self.elapsed())
            .field("pending_timers", &self.pending_timers())
            .field("busy", &self.time.busy)
            .finish()
    }
}
