//! A store between the executor and the real one that loses, delays and refuses what it is told to.
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

/// Wraps a store and does to its calls what a network and a dying process do: refuses, loses requests and
/// replies, hangs, delays, by script or by seeded chance. Writes down every call.
///
/// Clones are one handle. [`worker`](Self::worker) makes a further handle over the same store with faults of its
/// own, one for each simulated worker; all write into one [`log`](Self::log).
///
/// Capabilities: watch, browse, purge, admin, inspect, journal and order where the store has them, all but the first with faults, as
/// verbs of their own (an inspection is a [`StoreOperation::Peek`]). Batch is dropped, so that every request passes as a verb that can be scripted and logged.
///
/// For [`conformance!`](crate::conformance!) it is a way to lose replies: see [`Subject::losing`](crate::Subject::losing).
///
/// ```
/// use idempotent_core::MemoryStore;
/// use idempotent_testkit::{FaultStore, StoreOperation, VirtualClock};
///
/// let clock = VirtualClock::new();
/// let store = FaultStore::new(MemoryStore::new(), &clock);
/// store.lose_reply(StoreOperation::Complete, 1); // the next completion is applied, and nobody hears of it
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
    /// Without faults so far, as worker "0". Delays and the log's times are the clock's, and the clock waits for
    /// calls in flight.
    #[must_use]
    pub fn new(inner: impl Store, clock: &VirtualClock) -> Self {
        Self::build(Arc::new(inner), Arc::new(clock.clone()), clock.busy_count())
    }

    /// As [`new`](Self::new), by any clock: for tests in real time.
    #[must_use]
    pub fn on_clock(inner: impl Store, clock: Arc<dyn Clock>) -> Self {
        Self::build(Arc::new(inner), clock, InFlightCalls::default())
    }

    fn build(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, busy: InFlightCalls) -> Self {
        let start = clock.now();
        let shared = Shared { inner, clock, start, busy, log: Log::default() };
        Self { shared: Arc::new(shared), worker: "0".into(), script: Arc::default() }
    }

    /// Another handle over the same store and log, with faults of its own: none so far.
    #[must_use]
    pub fn worker(&self, name: impl Into<Arc<str>>) -> Self {
        Self { shared: self.shared.clone(), worker: name.into(), script: Arc::default() }
    }

    /// This handle's name in the log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.worker
    }

    /// Lets the next `n` calls through; for a script such as "the third completion gets lost". The faults of one
    /// verb are consumed in the order they were given; [`FOREVER`] is never used up.
    pub fn pass(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, None, n);
    }

    /// The next `n` calls are refused: `NotApplied`, and nothing is done.
    pub fn fail_before(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::Refuse), n);
    }

    /// The next `n` calls are applied and answered `Ambiguous`.
    pub fn lose_reply(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::LoseReply), n);
    }

    /// The next `n` calls are answered `Ambiguous`, and nothing is done.
    pub fn lose_request(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::LoseRequest), n);
    }

    /// The next `n` calls are applied and never answered.
    pub fn hang(&self, verb: StoreOperation, n: u32) {
        self.script().push(verb, Some(Fault::Hang), n);
    }

    /// From now on each call of `verb` reaches the store this much later; on top of other faults.
    pub fn delay(&self, verb: StoreOperation, by: Duration) {
        self.script().delay_request(verb, by);
    }

    /// From now on each answer to `verb` comes this much after it was applied; on top of other faults.
    pub fn delay_reply(&self, verb: StoreOperation, by: Duration) {
        self.script().delay_reply(verb, by);
    }

    /// Seeded faults for every call that no script is waiting for. The same seed gives the same faults for the
    /// same order of calls.
    pub fn chaos(&self, seed: u64, chaos: FaultRates) {
        self.script().chaos(seed, chaos);
    }

    /// The store is down for this handle: every call is refused, `NotApplied`.
    pub fn down(&self) {
        self.script().down = true;
    }

    /// The end of [`down`](Self::down).
    pub fn up(&self) {
        self.script().down = false;
    }

    /// The end of all scripts, delays, chaos and of [`down`](Self::down). The dead stay dead.
    pub fn heal(&self) {
        self.script().heal();
    }

    /// This handle's process is dead: every call from now on, and every answer still on its way, hangs for ever.
    /// What has reached the store is applied.
    pub fn kill(&self) {
        self.script().dead = true;
    }

    /// Whether no scripted fault is left, those for ever aside: for a test to see that its script was played.
    #[must_use]
    pub fn is_played(&self) -> bool {
        self.script().is_played()
    }

    /// Every call so far, by all handles, in the order they were begun.
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

    /// Every call of every verb comes through here.
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
                    // Not longer than the store works: a pause by the clock would stop the clock.
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
