//! Stores with one bug each, to verify that a test detects it.
//!
//! A test kit is only as good as its detection of bugs. [`Mutant`] is [`protocol`] over a map, correct without a bug
//! and faulty with one [`Bug`] of [`Bug::ALL`]. The tests of this crate check every mutant against every law of
//! [`conformance!`](idempotent_testkit::conformance!): each mutant breaks the intended laws, each law is broken by a mutant, and the
//! store without a bug keeps all laws.
//!
//! Use the mutants to test your own checks: a simulator, a checker of histories, a custom law.
//!
//! ```
//! use std::sync::Arc;
//! use idempotent_testkit::conformance::{Threads, hold, laws};
//! use idempotent_simulator::mutants::{Bug, Mutant};
//! use idempotent_testkit::{Subject, VirtualClock};
//!
//! let with = |bug| {
//!     let clock = VirtualClock::new();
//!     Subject::new(Mutant::new(bug, Arc::new(clock.clone()))).on_clock(clock)
//! };
//! let law = laws::owners::a_renewal_never_shortens;
//! hold(Threads::One, || with(None), law);
//! let broken = std::panic::catch_unwind(|| hold(Threads::One, || with(Some(Bug::RenewalShortens)), law));
//! assert!(broken.is_err());
//! ```
mod bug;
mod capability;
mod decide;
mod journal;
mod order;
mod rows;
mod search;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, Record, Release, Settled, State, StepRecord, Store,
    StoreCapabilities, StoreError, StoreErrorKind, Timestamp,
};
use tokio::sync::Notify;
use tokio::task::yield_now;

pub use self::bug::Bug;
use self::rows::{Row, Rows};
use idempotent_testkit::conformance::{LossInjector, LostPart};
use idempotent_testkit::{StoreOperation, Subject, VirtualClock};

/// A store over a map with one bug, or none. Clones share one connection; [`another`](Self::another) opens another one.
///
/// The store uses the wall clock of the given clock, which must not go back.
///
/// Capabilities: all.
#[derive(Clone, Debug)]
pub struct Mutant {
    bug: Option<Bug>,
    clock: Arc<dyn Clock>,
    opened: Timestamp,
    /// The time in µs by which the client's own clock is ahead.
    ahead: i64,
    shared: Arc<Shared>,
    own: Arc<Own>,
}

/// The state that all connections share.
#[derive(Debug, Default)]
struct Shared {
    rows: Mutex<Rows>,
    bell: Arc<Notify>,
    /// The lock of the steps is taken after that of the rows.
    steps: Mutex<BTreeMap<String, (Timestamp, Vec<StepRecord>)>>,
    lines: Mutex<BTreeMap<String, Vec<u8>>>,
}

/// The state of one connection.
#[derive(Debug, Default)]
struct Own {
    /// The cached records by key, for the bug that answers from a cache.
    known: Mutex<BTreeMap<String, Option<Record>>>,
    bell: Arc<Notify>,
    to_lose: Mutex<Vec<(StoreOperation, LostPart)>>,
    asked: Mutex<u64>,
    turn: tokio::sync::Mutex<()>,
}

impl Mutant {
    /// Creates an empty store with this bug; with `None`, the store is correct.
    #[must_use]
    pub fn new(bug: Option<Bug>, clock: Arc<dyn Clock>) -> Self {
        let opened = clock.wall();
        Self { bug, clock, opened, ahead: 0, shared: Arc::default(), own: Arc::default() }
    }

    /// Opens another connection to the same records.
    #[must_use]
    pub fn another(&self) -> Self {
        self.client(0)
    }

    /// Opens a connection of a process whose own clock is wrong by `micros` (negative if it is slow).
    #[must_use]
    pub fn client(&self, micros: i64) -> Self {
        Self { ahead: micros, own: Arc::default(), ..self.clone() }
    }

    /// Creates a subject with all features that laws need, on a clock of its own.
    #[must_use]
    pub fn subject(bug: Option<Bug>) -> Subject {
        const FIVE_MINUTES: i64 = 300_000_000;
        let clock = VirtualClock::new();
        let store = Self::new(bug, Arc::new(clock.clone()));
        Subject::new(store.clone())
            .on_clock(clock)
            .second(store.another())
            .clients(store.client(FIVE_MINUTES), store.client(-FIVE_MINUTES))
            .losing(store.clone())
            .planting(store)
    }

    /// Returns the bug.
    #[must_use]
    pub fn bug(&self) -> Option<Bug> {
        self.bug
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn now(&self) -> Timestamp {
        let now = if self.has(Bug::ClockReadOnce) { self.opened } else { self.clock.wall() };
        if self.has(Bug::ClientClock) { Timestamp(now.0.saturating_add_signed(self.ahead)) } else { now }
    }

    /// Returns the time by which a claim judges leases.
    fn now_of_takeover(&self, found: Option<&Record>) -> Timestamp {
        let now = self.now();
        match found.map(|record| &record.state) {
            Some(State::Consuming { .. }) if self.has(Bug::TakeoverByClientClock) => {
                Timestamp(now.0.saturating_add_signed(self.ahead))
            }
            _ => now,
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        lock(&self.shared.rows)
    }

    /// Returns the notification for waiters of this connection.
    fn bell(&self) -> &Arc<Notify> {
        if self.has(Bug::WakesItselfOnly) { &self.own.bell } else { &self.shared.bell }
    }

    /// Returns the record of the key, as this connection sees it.
    fn found(&self, rows: &Rows, key: &Key) -> Result<Option<Record>, StoreError> {
        let place = self.place(key);
        let read = || rows.get(&place).map(|row| self.read(row)).transpose().map(Option::flatten);
        if !self.has(Bug::AnswersFromMemory) {
            return read();
        }
        let mut known = lock(&self.own.known);
        if let Some(known) = known.get(&place) {
            return Ok(known.clone());
        }
        let found = read()?;
        known.insert(place, found.clone());
        Ok(found)
    }

    fn write(&self, rows: &mut Rows, key: &Key, write: Write) {
        let place = self.place(key);
        let record = match write {
            Write::Keep => return,
            Write::Put(record) => Some(decide::kept(self.bug, record, self.now())),
            Write::Delete => None,
        };
        lock(&self.own.known).insert(place.clone(), record.clone());
        match record {
            Some(record) => drop(rows.insert(place, Row::new(key, record))),
            None => drop(rows.remove(&place)),
        }
    }

    /// Reads, decides and writes: in one step, or in two with some bugs.
    async fn step<T>(
        &self,
        key: &Key,
        tears: impl Fn(Option<&Record>) -> bool + Send,
        decide: impl Fn(Option<&Record>) -> (T, Write) + Send,
    ) -> Result<T, StoreError> {
        let found = {
            let mut rows = self.rows();
            let found = match self.found(&rows, key) {
                Err(_) if self.has(Bug::UnreadableIsDeleted) => {
                    let raw = rows.remove(&self.place(key));
                    return Err(raw.and_then(|row| self.read(&row).err()).unwrap_or_else(unknown));
                }
                found => found?,
            };
            if !tears(found.as_ref()) {
                let (answer, write) = decide(found.as_ref());
                self.write(&mut rows, key, write);
                return Ok(answer);
            }
            if self.has(Bug::CompletionByDeleteAndInsert) {
                rows.remove(&self.place(key));
            }
            found
        };
        yield_now().await;
        let (answer, write) = decide(found.as_ref());
        self.write(&mut self.rows(), key, write);
        Ok(answer)
    }

    /// Returns whether a lease has expired.
    fn overdue(&self, found: Option<&Record>) -> bool {
        let now = self.now();
        let state = protocol::live(found, now).map(|record| &record.state);
        matches!(state, Some(State::Consuming { until, .. }) if *until <= now)
    }

    async fn settle(
        &self,
        key: &Key,
        decide: impl Fn(Option<&Record>) -> (Settled, Write) + Send,
    ) -> Result<Settled, StoreError> {
        self.step(key, |found| self.has(Bug::SettlingWithoutCompare) && self.overdue(found), decide).await
    }

    /// Counts the attempt before the claim: if the call is dropped in between, a count without an owner remains.
    async fn count(&self, key: &Key) {
        if !self.has(Bug::ClaimInTwoWrites) || !matches!(self.found(&self.rows(), key), Ok(None)) {
            return;
        }
        let now = self.now();
        let state = State::Vacant { not_before: now, error: "counted".into(), taken_over: None };
        let expires_at = now + Duration::from_secs(60);
        let (first_seen, updated_at, fencing) = (now, now, idempotent_core::FencingToken(now.0));
        let counted =
            Record { fencing, attempt: 1, fingerprint: None, state, expires_at, first_seen, updated_at, display: None };
        self.write(&mut self.rows(), key, Write::Put(counted));
        yield_now().await;
        self.rows().remove(&self.place(key));
    }

    /// Applies the call, or loses it.
    async fn sent<T>(
        &self,
        verb: StoreOperation,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let lost = {
            let mut to_lose = lock(&self.own.to_lose);
            to_lose.iter().position(|(lost, _)| *lost == verb).map(|at| to_lose.remove(at).1)
        };
        let error = |kind| Err(StoreError::new(kind).because("injected"));
        match lost {
            None => call.await,
            Some(LostPart::Connection | LostPart::Request) if self.has(Bug::RefusalIsDone) => {
                call.await.and_then(|_| error(StoreErrorKind::NotApplied))
            }
            Some(LostPart::Connection) if self.has(Bug::RefusalIsAmbiguous) => error(StoreErrorKind::Ambiguous),
            Some(LostPart::Connection) => error(StoreErrorKind::NotApplied),
            Some(LostPart::Request) => error(StoreErrorKind::Ambiguous),
            // The reply.
            Some(_) => {
                let done = call.await;
                let kind = if self.has(Bug::LostReplyIsNotApplied) {
                    StoreErrorKind::NotApplied
                } else {
                    StoreErrorKind::Ambiguous
                };
                done.and_then(|_| error(kind))
            }
        }
    }
}

fn unknown() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt).because("it was cleared away")
}

/// Ignores poisoning: a panic cannot leave a half-written record, because a write is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for Mutant {
    async fn claim(&self, ask: &ClaimRequest) -> Result<Claim, StoreError> {
        let claim = async {
            if self.has(Bug::UnreadableIsMismatch)
                && ask.fingerprint.is_some()
                && self.found(&self.rows(), &ask.key).is_err()
            {
                return Ok(Claim::Mismatch);
            }
            self.count(&ask.key).await;
            let _turn = match self.has(Bug::AtomicPerConnection) {
                true => Some(self.own.turn.lock().await),
                false => None,
            };
            let tears = |found: Option<&Record>| match self.bug {
                Some(Bug::NonAtomicClaim | Bug::AtomicPerConnection) => true,
                Some(Bug::TakeoverWithoutCompare) => self.overdue(found),
                _ => false,
            };
            self.step(&ask.key, tears, |found| decide::claim(self.bug, found, ask, self.now_of_takeover(found))).await
        };
        self.sent(StoreOperation::Claim, claim).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        let renew = self.settle(&held.key, |found| decide::renew(self.bug, found, held, lease, self.now()));
        self.sent(StoreOperation::Renew, renew).await
    }

    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        let holds = |record: &Record| matches!(record.state, State::Consuming { owner, .. } if owner == held.owner);
        let tears = |found: Option<&Record>| match self.bug {
            Some(Bug::CompletionByDeleteAndInsert) => found.is_some_and(holds),
            Some(Bug::SettlingWithoutCompare) => self.overdue(found),
            _ => false,
        };
        let complete = self.step(&held.key, tears, |found| decide::complete(self.bug, found, held, done, self.now()));
        let settled = self.sent(StoreOperation::Complete, complete).await?;
        self.bell().notify_waiters();
        Ok(settled)
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let put_down = self.settle(&held.key, |found| decide::release(self.bug, found, held, release, self.now()));
        let settled = self.sent(StoreOperation::Release, put_down).await?;
        if !self.has(Bug::ReleaseWakesNobody) {
            self.bell().notify_waiters();
        }
        Ok(settled)
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let peek = async {
            let (found, now) = (self.found(&self.rows(), key)?, self.now());
            Ok(found.filter(|record| self.has(Bug::PeekShowsExpired) || protocol::live(Some(record), now).is_some()))
        };
        self.sent(StoreOperation::Peek, peek).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        let most = StoreCapabilities::none().with_batch(self).with_watch(self).with_search(self).with_admin(self);
        let most = most.with_steps(self).with_order(self);
        let mut asked = lock(&self.own.asked);
        *asked += 1;
        if self.has(Bug::AbilityComesAndGoes) && asked.is_multiple_of(2) { most } else { most.with_purge(self) }
    }
}

impl LossInjector for Mutant {
    fn lose(&self, verb: StoreOperation, at: LostPart) {
        lock(&self.own.to_lose).push((verb, at));
    }
}
