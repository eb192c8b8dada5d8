//! A store between the executor and the real store that injects losses, delays and refusals.
mod capability;
mod log;
mod script;

use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, OwnerToken, Record, Release, Settled, Store,
    StoreCapabilities, StoreError, StoreErrorKind,
};

use self::log::{Log, Ticket};
pub use self::log::{StoreAnswer, StoreCall};
pub use self::script::{FOREVER, FaultRates, StoreOperation};
use self::script::{Fault, Script};
use crate::{InFlightCalls, VirtualClock};

/// A store that injects the faults of a network and of a crashing process into the calls of another store. By a script
/// or by seeded chance, it refuses calls, loses requests and replies, hangs, and delays. It logs every call.
///
/// Clones share one handle. [`worker`](Self::worker) creates another handle to the same store with separate faults, for
/// each simulated worker. All handles write to one [`log`](Self::log).
///
/// Capabilities: watch, search, purge, admin, inspect, journal and order if the store has them. All except watch are
/// subject to faults, as operations of their own (an inspection is a [`StoreOperation::Peek`]). Batch is never offered,
/// so that every request is an operation that can be scripted and logged.
///
/// In [`conformance!`](crate::conformance!), a `FaultStore` is a way to lose replies; see
/// [`Subject::losing`](crate::Subject::losing).
///
/// ```
/// use idempotent_core::MemoryStore;
/// use idempotent_testkit::{FaultStore, StoreOperation, VirtualClock};
///
/// let clock = VirtualClock::new();
/// let store = FaultStore::new(MemoryStore::new(), &clock);
/// store.lose_reply(StoreOperation::Complete, 1); // the next completion is applied, but its reply is lost
/// ```
#[derive(Clone, Debug)]
pub struct FaultStore {
    shared: Arc<Shared>,
    worker: Arc<str>,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    start: Instant,
    busy: InFlightCalls,
    log: Log,
}

impl FaultStore {
    /// Creates a store without faults, as worker "0". Delays and the times of the log use the clock, and the clock
    /// waits for calls in flight.
    #[must_use]
    pub fn new(inner: impl Store, clock: &VirtualClock) -> Self {
        Self::build(Arc::new(inner), Arc::new(clock.clone()), clock.busy_count())
    }

    /// Creates a store like [`new`](Self::new) with any clock, for tests in real time.
    #[must_use]
    pub fn on_clock(inner: impl Store, clock: Arc<dyn Clock>) -> Self {
        Self::build(Arc::new(inner), clock, InFlightCalls::default())
    }

    fn build(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, busy: InFlightCalls) -> Self {
        let start = clock.now();
        let shared = Shared { inner, clock, start, busy, log: Log::default() };
        Self { shared: Arc::new(shared), worker: "0".into(), script: Arc::default() }
    }

    /// Creates another handle to the same store and log, without faults.
    #[must_use]
    pub fn worker(&self, name: impl Into<Arc<str>>) -> Self {
        Self { shared: self.shared.clone(), worker: name.into(), script: Arc::default() }
    }

    /// Returns the name of this handle in the log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.worker
    }

    /// Passes the next `n` calls without a fault, for scripts such as "lose the third completion". The faults of an
    /// operation are consumed in the order in which they were added. [`FOREVER`] is never used up.
    pub fn pass(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, None, n);
    }

    /// Refuses the next `n` calls with `NotApplied`, without applying them.
    pub fn fail_before(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::Refuse), n);
    }

    /// Applies the next `n` calls, and answers `Ambiguous`.
    pub fn lose_reply(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::LoseReply), n);
    }

    /// Answers the next `n` calls with `Ambiguous`, without applying them.
    pub fn lose_request(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::LoseRequest), n);
    }

    /// Applies the next `n` calls, and never answers.
    pub fn hang(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::Hang), n);
    }

    /// Delays each call of `verb` by this time before it reaches the store, in addition to other faults.
    pub fn delay(&self, verb: StoreOperation, by: Duration) {
        self.script().delay_request(verb, by);
    }

    /// Delays each answer to `verb` by this time after the call was applied, in addition to other faults.
    pub fn delay_reply(&self, verb: StoreOperation, by: Duration) {
        self.script().delay_reply(verb, by);
    }

    /// Injects seeded faults into every call without a scripted one. The same seed gives the same faults for the same
    /// order of calls.
    pub fn chaos(&self, seed: u64, chaos: FaultRates) {
        self.script().chaos(seed, chaos);
    }

    /// Refuses every call of this handle with `NotApplied`, as if the store were down.
    pub fn down(&self) {
        self.script().down = true;
    }

    /// Ends [`down`](Self::down).
    pub fn up(&self) {
        self.script().down = false;
    }

    /// Ends all scripts, delays, chaos and [`down`](Self::down). Killed handles stay dead.
    pub fn heal(&self) {
        self.script().heal();
    }

    /// Kills the process of this handle: every later call, and every answer in transit, hangs forever. Calls that have
    /// reached the store are applied.
    pub fn kill(&self) {
        self.script().dead = true;
    }

    /// Returns whether no scripted fault is left, except those with [`FOREVER`], so that a test can verify that its
    /// script was used up.
    #[must_use]
    pub fn is_played(&self) -> bool {
        self.script().is_played()
    }

    /// Returns every call of all handles so far, in the order in which they began.
    #[must_use]
    pub fn log(&self) -> Vec<StoreCall> {
        self.shared.log.calls()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Duration {
        self.shared.clock.now().saturating_duration_since(self.shared.start)
    }

    async fn pause(&self, by: Duration) {
        if !by.is_zero() {
            self.shared.clock.sleep_until(self.shared.clock.now() + by).await;
        }
    }

    async fn stop_if_dead(&self) {
        if self.script().dead {
            pending::<()>().await;
        }
    }

    /// Runs every call of every operation.
    async fn call<T>(
        &self,
        verb: StoreOperation,
        key: Option<&Key>,
        owner: Option<OwnerToken>,
        request: impl Future<Output = Result<T, StoreError>> + Send,
        answer: impl Fn(&T) -> StoreAnswer + Send + Sync,
    ) -> Result<T, StoreError> {
        let show = |result: &Result<T, StoreError>| match result {
            Ok(value) => answer(value),
            Err(e) => StoreAnswer::Error(e.kind()),
        };
        let call = StoreCall::new(self.worker.clone(), verb, key.map(Key::hash), owner, self.elapsed());
        let ticket = self.shared.log.begin(call);
        self.stop_if_dead().await;
        let plan = self.script().plan(verb);
        self.pause(plan.delay_request).await;
        self.stop_if_dead().await;
        let result = match plan.fault {
            Some(Fault::Refuse) => Err(lost(StoreErrorKind::NotApplied, "refused")),
            Some(Fault::LoseRequest) => Err(lost(StoreErrorKind::Ambiguous, "request lost")),
            fault => {
                let result = {
                    // The guard does not outlive the work of the store: a delay by the clock would otherwise stop the
                    // clock.
                    let _busy = self.shared.busy.enter();
                    request.await
                };
                self.shared.log.applied(ticket, show(&result), self.elapsed());
                self.pause(plan.delay_reply).await;
                self.stop_if_dead().await;
                match fault {
                    Some(Fault::Hang) => pending().await,
                    Some(Fault::LoseReply) => Err(lost(StoreErrorKind::Ambiguous, "reply lost")),
                    _ => result,
                }
            }
        };
        self.end(ticket, show(&result));
        result
    }

    fn end(&self, ticket: Ticket, answer: StoreAnswer) {
        self.shared.log.end(ticket, answer, self.elapsed());
    }
}

fn lost(kind: StoreErrorKind, what: &str) -> StoreError {
    StoreError::new(kind).because(format!("injected: {what}"))
}

#[async_trait]
impl Store for FaultStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let call = self.shared.inner.claim(request);
        self.call(StoreOperation::Claim, Some(&request.key), Some(request.owner), call, |claim| {
            StoreAnswer::Claim(claim.clone())
        })
        .await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        let call = self.shared.inner.renew(held, lease);
        self.call(StoreOperation::Renew, Some(&held.key), Some(held.owner), call, |settled| {
            StoreAnswer::Settled(*settled)
        })
        .await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        let call = self.shared.inner.complete(held, completion);
        self.call(StoreOperation::Complete, Some(&held.key), Some(held.owner), call, |settled| {
            StoreAnswer::Settled(*settled)
        })
        .await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let call = self.shared.inner.release(held, release);
        self.call(StoreOperation::Release, Some(&held.key), Some(held.owner), call, |settled| {
            StoreAnswer::Settled(*settled)
        })
        .await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let call = self.shared.inner.peek(key);
        let answer = |record: &Option<Record>| StoreAnswer::Peeked(record.clone());
        self.call(StoreOperation::Peek, Some(key), None, call, answer).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.forwarded()
    }
}
