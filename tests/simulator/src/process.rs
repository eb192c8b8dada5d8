//! The process of a worker, which can be stopped for a while, and can die with requests in transit.
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, Record, Release, Settled, Store, StoreCapabilities,
    StoreError, Timer, Timestamp, Watch, Watching,
};

use super::events::Recorder;
use idempotent_testkit::__private::{Answers, Ask, Carries, all_ambiguous, store_that_carries};
use idempotent_testkit::VirtualClock;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A simulation runs in one thread, and does not continue after a panic of its own.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock of a process that can be stopped. While the process is stopped, none of its timers fires, as with SIGSTOP.
/// Its wall clock can be wrong by any time.
#[derive(Clone, Debug)]
pub struct ProcessClock {
    time: VirtualClock,
    wall: VirtualClock,
    stopped_until: Arc<Mutex<Instant>>,
}

impl ProcessClock {
    /// Creates a clock with the time of `time` and a wall clock that is wrong by `skew` µs.
    #[must_use]
    pub fn new(time: &VirtualClock, skew: i64) -> Self {
        let stopped_until = Arc::new(Mutex::new(time.now()));
        Self { time: time.clone(), wall: time.skewed(skew), stopped_until }
    }

    /// Stops the process: none of its tasks runs before this time has passed.
    pub fn stop_for(&self, pause: Duration) {
        let until = self.time.now() + pause;
        let mut stopped = lock(&self.stopped_until);
        *stopped = (*stopped).max(until);
    }

    /// Sets the error of the wall clock to `skew` µs, in either direction.
    pub fn set_wall(&self, skew: i64) {
        self.wall.set_wall_offset(skew);
    }

    /// Waits until the process runs.
    pub(super) async fn running(&self) {
        loop {
            let until = *lock(&self.stopped_until);
            if until <= self.time.now() {
                return;
            }
            self.time.sleep_until(until).await;
        }
    }

    /// Pauses a task of this process.
    ///
    /// # Cancellation
    /// Dropping the future ends the pause.
    pub async fn sleep(&self, pause: Duration) {
        self.sleep_until(self.now() + pause).await;
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Instant {
        self.time.now()
    }

    fn wall(&self) -> Timestamp {
        self.wall.wall()
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        let (clock, first) = (self.clone(), self.time.sleep_until(deadline));
        Box::pin(async move {
            first.await;
            clock.running().await;
        })
    }
}

/// The connection of a process to its store. A sent request is in transit, whether or not the process still waits for
/// the answer. A stopped process neither sends nor receives.
///
/// Capabilities: watch and batch, if the store has them.
#[derive(Clone, Debug)]
pub struct Wire {
    inner: Arc<dyn Store>,
    clock: ProcessClock,
    dead: Arc<AtomicBool>,
    under_way: Arc<UnderWay>,
    /// The incarnation that writes the history.
    recorder: Option<(u32, Recorder)>,
}

/// The requests that were sent and not answered.
#[derive(Debug, Default)]
struct UnderWay {
    calls: Mutex<BTreeMap<u64, (u64, Vec<Ask>)>>,
    sent: AtomicU64,
}

impl Wire {
    /// Creates the connection from a process with this clock to `store`.
    #[must_use]
    pub fn new(store: impl Store, clock: &ProcessClock) -> Self {
        let (dead, under_way) = Default::default();
        Self { inner: Arc::new(store), clock: clock.clone(), dead, under_way, recorder: None }
    }

    /// Records the requests and answers of this incarnation.
    pub(super) fn recorded(self, incarnation: u32, recorder: &Recorder) -> Self {
        Self { recorder: Some((incarnation, recorder.clone())), ..self }
    }

    /// Kills the process. Its sent requests may still arrive.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.forget_what_is_under_way();
    }

    /// Drops the requests in transit, whose answers are no longer needed.
    pub(super) fn forget_what_is_under_way(&self) {
        let calls = std::mem::take(&mut *lock(&self.under_way.calls));
        for (t0, asks) in calls.into_values() {
            self.write(t0, &asks, &all_ambiguous(&asks, "nobody heard"));
        }
    }

    async fn alive(&self) {
        self.clock.running().await;
        if self.dead.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
    }

    fn write(&self, t0: u64, asks: &[Ask], answers: &Answers) {
        let Some((incarnation, recorder)) = &self.recorder else { return };
        for (ask, answer) in asks.iter().zip(answers) {
            recorder.line(*incarnation, |line| {
                ask.line(line, answer).map(|line| idempotent_testkit::history::Line { t0, ..line })
            });
        }
    }

    fn send(&self, asks: &[Ask]) -> Sent<'_> {
        let number = self.under_way.sent.fetch_add(1, Ordering::SeqCst);
        let t0 = self.recorder.as_ref().map_or(0, |(_, recorder)| recorder.now());
        lock(&self.under_way.calls).insert(number, (t0, asks.to_vec()));
        Sent { wire: self, number }
    }
}

/// A sent request. If it is dropped without an answer, its result is unknown.
struct Sent<'a> {
    wire: &'a Wire,
    number: u64,
}

impl Sent<'_> {
    fn heard(&self, answers: &Answers) {
        if let Some((t0, asks)) = lock(&self.wire.under_way.calls).remove(&self.number) {
            self.wire.write(t0, &asks, answers);
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let unheard = lock(&self.wire.under_way.calls).remove(&self.number);
        if let Some((t0, asks)) = unheard {
            self.wire.write(t0, &asks, &all_ambiguous(&asks, "given up"));
        }
    }
}

impl Carries for Wire {
    async fn carry(&self, asks: Vec<Ask>, together: bool) -> Answers {
        self.alive().await;
        let sent = self.send(&asks);
        let store = self.inner.clone();
        let call = tokio::spawn(async move { idempotent_testkit::__private::ask(&*store, &asks, together).await });
        let Ok(answers) = call.await else {
            // The runtime is shutting down.
            return pending().await;
        };
        self.alive().await;
        sent.heard(&answers);
        answers
    }
}
store_that_carries!(Wire);

impl Watch for Wire {
    fn watch(&self, key: &Key) -> Watching {
        let Some(watch) = self.inner.capabilities().watch else { return Box::pin(pending()) };
        let (wire, watching) = (self.clone(), watch.watch(key));
        Box::pin(async move {
            watching.await;
            wire.alive().await;
        })
    }
}
