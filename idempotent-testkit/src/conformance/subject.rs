//! A store under test, and what the laws do with it.
#![allow(clippy::panic, reason = "law bodies are test code: a store that fails a call fails the law")]
use std::any::Any;
use std::fmt;
use std::future::{IntoFuture, Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Grant, Held, Identity, Key, OnExpiry, OwnerToken, Record, Release, Scene, Settled,
    StateKind, Store, StoreError, Verdict,
};

use crate::VirtualClock;

/// A store under test, with the clock it reads and what has to be cleaned up after it.
///
/// Dropped in this order: store, clock, guard.
pub struct Subject {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Option<VirtualClock>,
    _guard: Box<dyn Any + Send>,
}

/// Longer than any law takes.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const MS: Duration = Duration::from_millis(1);

impl Subject {
    /// An empty store with a clock of its own, and nothing to clean up. Give each subject its own table, prefix or
    /// file: all use the same keys, so that a law broken once is broken the same way again.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), clock: None, _guard: Box::new(()) }
    }

    /// Says that the store reads its time from this clock: laws about time are then exact and take no time.
    #[must_use]
    pub fn on_clock(mut self, clock: VirtualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Dropped at the end of each test, after the store: a temporary file, a server.
    #[must_use]
    pub fn guarded_by(mut self, guard: impl Any + Send) -> Self {
        self._guard = Box::new(guard);
        self
    }

    /// What laws lease for: short where it has to be waited for.
    pub(crate) fn lease(&self) -> Duration {
        if self.clock.is_some() { Duration::from_secs(30) } else { Duration::from_secs(1) }
    }

    /// Lets time pass for the store: exactly `by`, or a little more where it is real.
    pub(crate) async fn pass(&self, by: Duration) {
        match &self.clock {
            Some(clock) => clock.advance(by).await,
            None => tokio::time::sleep(by + 20 * MS).await,
        }
    }

    /// Lets all but the last ms of `span` pass; false, and nothing has passed, if the clock cannot do that.
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

    /// A claim on the law's main key.
    pub(crate) fn ask(&self, owner: u128) -> ClaimRequest {
        ClaimRequest {
            key: self.key("k"),
            owner: OwnerToken(owner),
            lease: self.lease(),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            memory: HOUR,
            display: None,
        }
    }

    pub(crate) fn held(&self, owner: u128) -> Held {
        self.ask(owner).held()
    }

    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Claim {
        must("claim", self.store.claim(request).await)
    }

    /// Claims the main key with defaults.
    pub(crate) async fn claim_by(&self, owner: u128) -> Claim {
        self.claim(&self.ask(owner)).await
    }

    pub(crate) async fn renew(&self, owner: u128, lease: Duration) -> Settled {
        must("renew", self.store.renew(&self.held(owner), lease).await)
    }

    pub(crate) async fn complete(&self, owner: u128, value: &[u8]) -> Settled {
        must("complete", self.store.complete(&self.held(owner), &done(value, HOUR)).await)
    }

    pub(crate) async fn release(&self, owner: u128, verdict: Verdict) -> Settled {
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

/// So that a builder need not be a future.
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

/// What a claim leads to.
pub(crate) trait HeldBy {
    fn held(&self) -> Held;
}

impl HeldBy for ClaimRequest {
    fn held(&self) -> Held {
        Held::unanswered(self.key.clone(), self.owner)
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
        other => panic!("expected to acquire the key, got {other:?}"),
    }
}

pub(crate) fn done(value: &[u8], retain: Duration) -> Completion {
    Completion { value: Some(value.into()), retain }
}

/// Without a delay, remembered for long.
pub(crate) fn put_down(verdict: Verdict) -> Release {
    Release { verdict, delay: Duration::ZERO, memory: HOUR, error: "no stock".into() }
}

pub(crate) fn lost(now: StateKind) -> Settled {
    Settled::Lost { now }
}

pub(crate) const VERDICTS: [Verdict; 5] =
    [Verdict::Delete, Verdict::Vacate, Verdict::Refund, Verdict::Fail, Verdict::Bury];
