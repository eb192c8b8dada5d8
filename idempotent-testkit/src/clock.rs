//! A virtual clock, whose time stops until a test moves it.
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

/// A [`Clock`] whose time stops until a test moves it. Clones share the time.
///
/// [`advance`](Self::advance) goes from one due timer to the next and runs all ready tasks in between, so heartbeats,
/// waits and time limits happen at exactly their times. Each timer on the way takes about a ms of real time. `advance`
/// and [`settle`](Self::settle) need a `current_thread` runtime, as `#[tokio::test]` has: only there can the clock
/// detect that no task is ready. [`jump`](Self::jump) works on every runtime.
///
/// The clock waits for a store on another thread by its [`InFlightCalls`] count. Wrap such a store in a
/// [`FaultStore`](crate::FaultStore), which maintains this count.
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
    /// The offset of this handle's wall clock from the true one, in µs.
    wall_offset: Arc<AtomicI64>,
}

struct Time {
    /// A real `Instant`, since one cannot be constructed. Only differences from it are used.
    origin: Instant,
    wall_at_origin: Timestamp,
    timers: Mutex<Timers>,
    busy: InFlightCalls,
}

/// The number of yields in one round of settling. A wake-up takes one yield, and each yield runs up to 61 tasks. This
/// is therefore the longest chain of tasks waking each other that one round follows.
const ROUND: usize = 256;

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl VirtualClock {
    /// The start of the wall clock: 2026-01-01 00:00 UTC.
    pub const START: Timestamp = Timestamp(1_767_225_600_000_000);

    /// Creates a clock whose wall clock starts at [`START`](Self::START).
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Self::START)
    }

    /// Creates a clock whose wall clock starts at `wall`.
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

    /// Returns the time that has passed since the clock was created.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.timers().elapsed
    }

    /// Returns the number of timers that have neither fired nor been dropped.
    #[must_use]
    pub fn pending_timers(&self) -> usize {
        self.timers().len()
    }

    /// Returns a handle with the same time and timers, whose wall clock is wrong by `micros` (negative if it is slow), like a
    /// client whose clock differs from the store's.
    #[must_use]
    pub fn skewed(&self, micros: i64) -> Self {
        Self { time: self.time.clone(), wall_offset: Arc::new(AtomicI64::new(micros)) }
    }

    /// Sets the error of the wall clock of this handle and its clones to `micros`, as if an operator set the clock. The
    /// wall clock may go back, which a [`Clock`] otherwise must not.
    pub fn set_wall_offset(&self, micros: i64) {
        self.wall_offset.store(micros, Ordering::SeqCst);
    }

    /// Returns a guard that counts as a call in flight until it is dropped. [`settle`](Self::settle) waits for it. Use
    /// the guard only for calls that end without moving this clock.
    pub fn busy(&self) -> InFlightGuard {
        self.time.busy.enter()
    }

    /// Returns the count of [`busy`](Self::busy) guards, which all handles of this clock share.
    #[must_use]
    pub fn busy_count(&self) -> InFlightCalls {
        self.time.busy.clone()
    }

    /// Advances the time by `by` and stops at every due timer: the timer fires, all ready tasks run, and the time
    /// advances further. Timers fire in the order of their deadlines, and timers with the same deadline in the order of
    /// their creation. Timers created on the way also fire.
    ///
    /// # Panics
    /// On a multi-thread runtime, where a task on another thread may set its timer too late and wait forever.
    ///
    /// # Cancellation
    /// The time stays where it is when the future is dropped.
    pub async fn advance(&self, by: Duration) {
        require_one_thread();
        self.pass(by).await;
    }

    /// Advances like [`advance`](Self::advance), on any runtime. Only for users that read the time and do not wait for
    /// timers, such as a store in a law about races.
    pub(crate) async fn pass(&self, by: Duration) {
        // Tasks that were just spawned first set their timers, at the time of spawning.
        self.quiet().await;
        let target = self.elapsed().saturating_add(by);
        while self.fire_next(target) {
            self.quiet().await;
        }
        self.timers().move_to(target);
        self.quiet().await;
    }

    /// Advances like [`advance`](Self::advance), but fires all timers of one instant before any task runs, so that the
    /// woken tasks run concurrently. Each timer takes one of `timers`, until they are used up. For the
    /// simulator of this project.
    #[doc(hidden)]
    pub async fn advance_by_timers(&self, by: Duration, timers: &mut u64) {
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

    /// Returns the error of this handle's wall clock in µs.
    #[must_use]
    pub fn wall_offset(&self) -> i64 {
        self.wall_offset.load(Ordering::SeqCst)
    }

    /// Advances the time by `by` in one step, as for a process that was stopped: all timers due in between fire late.
    /// No task runs until the caller waits; see [`settle`](Self::settle).
    pub fn jump(&self, by: Duration) {
        let target = {
            let mut timers = self.timers();
            let target = timers.elapsed.saturating_add(by);
            timers.move_to(target);
            target
        };
        while self.fire_next(target) {}
    }

    /// Runs all ready tasks without moving the time, until a whole round of yields finds no store call in flight.
    ///
    /// A call that counts as in flight and waits for this clock makes this method wait forever.
    ///
    /// # Panics
    /// On a multi-thread runtime, where this task cannot see the other tasks.
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

    /// Fires the first timer due by `target` and moves the time to its deadline. Returns false if there is no such
    /// timer.
    fn fire_next(&self, target: Duration) -> bool {
        let due = self.timers().take_due(target);
        // The waker is called outside of the lock, because it may run any code.
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

/// Panics in a task of a multi-thread runtime. Without a runtime there is only one thread, so the polling code sees all
/// tasks.
#[track_caller]
pub(crate) fn require_one_thread() {
    if Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread) {
        fail("VirtualClock needs a current_thread runtime, as `#[tokio::test]` has; this runtime is multi_thread");
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
