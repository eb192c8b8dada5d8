//! A store under test, and the operations that laws use.
#![allow(clippy::panic, reason = "law bodies are test code: a store that fails a call fails the law")]
use std::any::Any;
use std::fmt;
use std::future::{IntoFuture, Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Admin, Batch, Claim, ClaimHandle, ClaimRequest, Completion, Grant, Identity, Key, OnExpiry, OrderStore, OwnerToken,
    Purge, Record, Release, ReleaseKind, Scene, Search, Settled, StateKind, StepStore, Store, StoreError, Watch,
};

use super::damage::{Damage, DamageInjector};
use super::lose::LossInjector;
use super::need::Need;
use super::pace::{LEASES, Pace};
use crate::VirtualClock;

/// A store under test, with its clock, the optional features for laws, and its clean-up.
///
/// Only the store is required. Optional features enable more laws: [`on_clock`](Self::on_clock),
/// [`second`](Self::second), [`clients`](Self::clients), [`losing`](Self::losing), [`planting`](Self::planting). A law
/// without its needs does not pass; see [`conformance!`](crate::conformance!).
///
/// The fields are dropped in this order: stores, clock, optional features, guard.
pub struct Subject {
    pub(crate) store: Arc<dyn Store>,
    second: Option<Arc<dyn Store>>,
    clients: Option<[Arc<dyn Store>; 2]>,
    pub(crate) clock: Option<VirtualClock>,
    pub(crate) losing: Option<Box<dyn LossInjector>>,
    planting: Option<Box<dyn DamageInjector>>,
    rounds: u32,
    pub(crate) largest_value: u32,
    pace: Arc<Pace>,
    _guard: Box<dyn Any + Send>,
}

/// Longer than the duration of any law.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const MS: Duration = Duration::from_millis(1);

impl Subject {
    /// Creates a subject with an empty store, a clock of its own, and no clean-up. Give each subject its own table,
    /// prefix or file: all subjects use the same keys, so that a broken law fails in the same way each time.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::of(Arc::new(store))
    }

    fn of(store: Arc<dyn Store>) -> Self {
        let (second, clients, clock, losing, planting) = (None, None, None, None, None);
        let (pace, _guard) = (Arc::new(Pace::new(LEASES[0])), Box::new(()));
        Self { store, second, clients, clock, losing, planting, rounds: 1_000, largest_value: 1_000_000, pace, _guard }
    }

    /// Sets the clock that the store reads. Laws about time are then exact and take no time.
    #[must_use]
    pub fn on_clock(mut self, clock: VirtualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Offers a second connection to the same records, like that of another process. Open it separately: it must not be
    /// a clone of the first store if a clone shares more than the records.
    #[must_use]
    pub fn second(mut self, store: impl Store) -> Self {
        self.second = Some(Arc::new(store));
        self
    }

    /// Offers two more connections to the same records, of processes whose clocks are 5 minutes fast and 5 minutes
    /// slow, for a store with the time of a server. A store with the time of the process has no such clients, since
    /// all its processes must agree on the time.
    #[must_use]
    pub fn clients(mut self, ahead: impl Store, behind: impl Store) -> Self {
        self.clients = Some([Arc::new(ahead), Arc::new(behind)]);
        self
    }

    /// Offers a way to lose requests and replies between the subject's store and its records. Without one, the laws
    /// discard answers themselves, and do not see which errors the store returns for a loss.
    #[must_use]
    pub fn losing(mut self, losing: impl LossInjector + 'static) -> Self {
        self.losing = Some(Box::new(losing));
        self
    }

    /// Offers a way to damage records outside of the store.
    #[must_use]
    pub fn planting(mut self, planting: impl DamageInjector + 'static) -> Self {
        self.planting = Some(Box::new(planting));
        self
    }

    /// Sets the number of rounds of each race, with 64 tasks each. Races with more steps in a round have a tenth of the
    /// rounds. Use fewer for a slow store: a race that fails once in a thousand rounds is then found in one of many
    /// runs.
    ///
    /// # Default
    /// 1,000
    #[must_use]
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets the size of the largest value that laws store, in bytes, for a store whose server limits records.
    ///
    /// # Default
    /// 1,000,000
    #[must_use]
    pub fn largest_value(mut self, bytes: u32) -> Self {
        self.largest_value = bytes;
        self
    }

    /// Sets a guard that is dropped at the end of each test, after the store: a temporary file, a server.
    #[must_use]
    pub fn guarded_by(mut self, guard: impl Any + Send) -> Self {
        self._guard = Box::new(guard);
        self
    }

    /// Returns the needs that are neither capabilities of the store nor offered by the builder.
    #[must_use]
    pub fn missing(&self) -> Vec<Need> {
        Need::ALL.iter().copied().filter(|need| !self.has(*need)).collect()
    }

    fn has(&self, need: Need) -> bool {
        let capabilities = self.store.capabilities();
        match need {
            Need::Clock => self.clock.is_some(),
            Need::Second => self.second.is_some(),
            Need::Clients => self.clients.is_some(),
            Need::Losing => self.losing.is_some(),
            Need::Planting => self.planting.is_some(),
            Need::Foreign => self.planting.as_ref().is_some_and(|planting| planting.holds(Damage::Foreign)),
            Need::Batch => capabilities.batch.is_some(),
            Need::Watch => capabilities.watch.is_some(),
            Need::Search => capabilities.search.is_some(),
            Need::Purge => capabilities.purge.is_some(),
            Need::Admin => capabilities.admin.is_some(),
            Need::Journal => capabilities.steps.is_some(),
            Need::Order => capabilities.order.is_some(),
        }
    }

    /// Returns the feature that the law needs.
    #[track_caller]
    fn needed<T>(&self, need: Need, offered: Option<T>) -> T {
        offered.unwrap_or_else(|| {
            let missing = self.missing().iter().map(|need| need.name()).collect::<Vec<_>>().join(", ");
            panic!(
                "needs `{need}`: {}, or leave it out by `without`. All that this subject does not offer: \
                 conformance!(name, builder, without: [{missing}])",
                need.remedy()
            )
        })
    }

    pub(crate) fn exact_clock(&self) -> &VirtualClock {
        self.needed(Need::Clock, self.clock.as_ref())
    }

    pub(crate) fn can_lose(&self) {
        self.needed(Need::Losing, self.losing.as_ref());
    }

    pub(crate) fn plant(&self) -> &dyn DamageInjector {
        self.needed(Need::Planting, self.planting.as_deref())
    }

    /// Returns the injector like [`plant`](Self::plant), which can also write values that are not records.
    pub(crate) fn plant_foreign(&self) -> &dyn DamageInjector {
        self.needed(Need::Foreign, self.planting.as_deref().filter(|planting| planting.holds(Damage::Foreign)))
    }

    pub(crate) fn batch(&self) -> &dyn Batch {
        self.needed(Need::Batch, self.store.capabilities().batch)
    }

    pub(crate) fn watch(&self) -> &dyn Watch {
        self.needed(Need::Watch, self.store.capabilities().watch)
    }

    pub(crate) fn search(&self) -> &dyn Search {
        self.needed(Need::Search, self.store.capabilities().search)
    }

    pub(crate) fn purge(&self) -> &dyn Purge {
        self.needed(Need::Purge, self.store.capabilities().purge)
    }

    pub(crate) fn admin(&self) -> &dyn Admin {
        self.needed(Need::Admin, self.store.capabilities().admin)
    }

    pub(crate) fn journal(&self) -> &dyn StepStore {
        self.needed(Need::Journal, self.store.capabilities().steps)
    }

    pub(crate) fn order(&self) -> &dyn OrderStore {
        self.needed(Need::Order, self.store.capabilities().order)
    }

    /// Returns the same records over the second connection.
    pub(crate) fn over_second(&self) -> Self {
        self.over(self.needed(Need::Second, self.second.as_ref()))
    }

    /// Returns the same records over the second connection if there is one, otherwise over the first.
    pub(crate) fn over_any_second(&self) -> Self {
        self.over(self.second.as_ref().unwrap_or(&self.store))
    }

    /// Returns the same records as the two clients with wrong clocks see them.
    pub(crate) fn over_clients(&self) -> [Self; 2] {
        let [ahead, behind] = self.needed(Need::Clients, self.clients.as_ref());
        [self.over(ahead), self.over(behind)]
    }

    fn over(&self, store: &Arc<dyn Store>) -> Self {
        let (clock, pace) = (self.clock.clone(), self.pace.clone());
        Self { clock, pace, rounds: self.rounds, largest_value: self.largest_value, ..Self::of(store.clone()) }
    }

    /// Returns the number of rounds of each race.
    pub(crate) fn race_rounds(&self) -> u32 {
        self.rounds
    }

    /// Begins a law in real time, with this lease.
    pub(crate) fn begin(&mut self, lease: Duration) {
        self.pace = Arc::new(Pace::new(lease));
    }

    /// Returns whether a law in real time is inconclusive, because its own steps took too long.
    pub(crate) fn was_too_slow(&self) -> bool {
        self.clock.is_none() && self.pace.was_too_slow()
    }

    /// Returns the lease of laws, which is short if laws wait in real time.
    pub(crate) fn lease(&self) -> Duration {
        if self.clock.is_some() { Duration::from_secs(30) } else { self.pace.lease }
    }

    /// Lets time pass for the store: exactly `by`, or slightly more in real time.
    pub(crate) async fn pass(&self, by: Duration) {
        match &self.clock {
            Some(clock) => clock.pass(by).await,
            None => self.pace.pass(by + 20 * MS).await,
        }
    }

    /// Lets `span` pass except for its last ms. Returns false, without any wait, if the clock cannot do that.
    pub(crate) async fn pass_almost(&self, span: Duration) -> bool {
        if let Some(clock) = &self.clock {
            clock.advance(span - MS).await;
        }
        self.clock.is_some()
    }

    pub(crate) fn identity(&self, part: &str) -> Identity {
        Identity::new(Scene::Mq, "law", part)
    }

    pub(crate) fn key_of(&self, identity: &Identity) -> Key {
        identity.key("laws").unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn key(&self, part: &str) -> Key {
        self.key_of(&self.identity(part))
    }

    /// Returns a claim on a separate key.
    pub(crate) fn ask_on(&self, part: &str, owner: u128) -> ClaimRequest {
        ClaimRequest { key: self.key(part), ..self.ask(owner) }
    }

    /// Returns a claim on the law's main key.
    pub(crate) fn ask(&self, owner: u128) -> ClaimRequest {
        ClaimRequest {
            key: self.key("k"),
            owner: OwnerToken(owner),
            lease: self.lease(),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: HOUR,
            display: None,
        }
    }

    pub(crate) fn held(&self, owner: u128) -> ClaimHandle {
        self.ask(owner).held()
    }

    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Claim {
        must("claim", self.store.claim(request).await)
    }

    /// Claims the main key with default settings.
    pub(crate) async fn claim_by(&self, owner: u128) -> Claim {
        self.claim(&self.ask(owner)).await
    }

    pub(crate) async fn renew(&self, owner: u128, lease: Duration) -> Settled {
        must("renew", self.store.renew(&self.held(owner), lease).await)
    }

    pub(crate) async fn complete(&self, owner: u128, value: &[u8]) -> Settled {
        must("complete", self.store.complete(&self.held(owner), &done(value, HOUR)).await)
    }

    pub(crate) async fn release(&self, owner: u128, verdict: ReleaseKind) -> Settled {
        self.release_as(owner, &put_down(verdict)).await
    }

    pub(crate) async fn release_as(&self, owner: u128, release: &Release) -> Settled {
        must("release", self.store.release(&self.held(owner), release).await)
    }

    pub(crate) async fn peek(&self) -> Option<Record> {
        must("peek", self.store.peek(&self.key("k")).await)
    }

    pub(crate) async fn state(&self) -> StateKind {
        self.peek().await.map_or(StateKind::Absent, |record| record.state.kind())
    }
}

/// Allows a builder that is not a future.
impl IntoFuture for Subject {
    type Output = Self;
    type IntoFuture = Ready<Self>;

    fn into_future(self) -> Ready<Self> {
        ready(self)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("store", &self.store).field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Conversion into the handle of a claim.
pub(crate) trait HeldBy {
    fn held(&self) -> ClaimHandle;
}

impl HeldBy for ClaimRequest {
    fn held(&self) -> ClaimHandle {
        ClaimHandle::unanswered(self.key.clone(), self.owner)
    }
}

#[track_caller]
pub(crate) fn must<T>(verb: &str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|e| panic!("{verb} failed: {e}"))
}

#[track_caller]
pub(crate) fn acquired(claim: Claim) -> Grant {
    match claim {
        Claim::Acquired(grant) => grant,
        other => {
            panic!("the store answered {other:?}, the protocol says that this claim acquires the key: it has no owner")
        }
    }
}

pub(crate) fn done(value: &[u8], retain: Duration) -> Completion {
    Completion { value: Some(value.into()), retain }
}

/// Returns a release without a delay, with a long retention.
pub(crate) fn put_down(verdict: ReleaseKind) -> Release {
    Release { kind: verdict, delay: Duration::ZERO, retention: HOUR, error: "no stock".into() }
}

pub(crate) fn lost(now: StateKind) -> Settled {
    Settled::Lost { now }
}

pub(crate) const VERDICTS: [ReleaseKind; 5] =
    [ReleaseKind::Delete, ReleaseKind::Vacate, ReleaseKind::Refund, ReleaseKind::MarkFailed, ReleaseKind::MarkDead];
