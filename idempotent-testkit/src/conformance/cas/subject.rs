//! A backend under test, and the operations that laws use.
#![allow(clippy::panic, reason = "law bodies are test code: a backend that fails a call fails the law")]
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    CasBackend, FencingToken, Identity, Key, OwnerToken, Record, Scene, State, StoreError, StoreErrorKind, Timestamp,
    Version, VersionedRecord,
};

use crate::VirtualClock;
use crate::conformance::subject::{HOUR, MS, must};

/// A [`CasBackend`] under test, with its clock and its clean-up.
///
/// The fields are dropped in this order: backend, clock, guard.
pub struct CasSubject {
    backend: Arc<dyn CasBackend>,
    clock: Option<VirtualClock>,
    rounds: u32,
    pub(crate) largest_value: u32,
    _guard: Box<dyn Any + Send>,
}

impl CasSubject {
    /// Creates a subject with an empty backend, a clock of its own, and no clean-up. Give each subject its own table,
    /// prefix or file: all subjects use the same keys, so that a broken law fails in the same way each time.
    #[must_use]
    pub fn new(backend: impl CasBackend) -> Self {
        let (backend, _guard) = (Arc::new(backend), Box::new(()));
        Self { backend, clock: None, rounds: 1_000, largest_value: 1_000_000, _guard }
    }

    /// Sets the size of the largest value that laws store, in bytes, for a backend whose server limits records.
    ///
    /// # Default
    /// 1,000,000
    #[must_use]
    pub fn largest_value(mut self, bytes: u32) -> Self {
        self.largest_value = bytes;
        self
    }

    /// Sets the clock that the backend reads. Laws about time then take no time.
    #[must_use]
    pub fn on_clock(mut self, clock: VirtualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the number of rounds of each race, with 64 tasks each. Use fewer for a slow backend.
    ///
    /// # Default
    /// 1,000
    #[must_use]
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets a guard that is dropped at the end of each test, after the backend: a temporary file, a server.
    #[must_use]
    pub fn guarded_by(mut self, guard: impl Any + Send) -> Self {
        self._guard = Box::new(guard);
        self
    }

    /// Lets time pass for the backend: exactly `by`, or slightly more in real time.
    pub(crate) async fn pass(&self, by: Duration) {
        match &self.clock {
            Some(clock) => clock.pass(by).await,
            None => tokio::time::sleep(by + 20 * MS).await,
        }
    }

    pub(crate) fn clock(&self) -> Option<&VirtualClock> {
        self.clock.as_ref()
    }

    pub(crate) fn race_rounds(&self) -> u32 {
        self.rounds
    }

    pub(crate) fn key(&self, part: &str) -> Key {
        Identity::new(Scene::Mq, "cas law", part).key("laws").unwrap_or_else(|e| panic!("{e}"))
    }

    /// Returns a handle for the calls of laws, also for other tasks.
    pub(crate) fn hand(&self, key: &str) -> Hand {
        Hand { backend: self.backend.clone(), key: self.key(key) }
    }
}

/// Allows `async { a backend }` as the expression.
impl<B: CasBackend> From<B> for CasSubject {
    fn from(backend: B) -> Self {
        Self::new(backend)
    }
}

impl fmt::Debug for CasSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, clock, .. } = self;
        f.debug_struct("CasSubject").field("backend", backend).field("clock", clock).finish_non_exhaustive()
    }
}

/// The result of the builder of [`cas_conformance!`](crate::cas_conformance!): a [`CasSubject`], a [`CasBackend`], or a
/// future of either. `Form` distinguishes them and is always inferred.
pub trait CasSource<Form: ?Sized> {
    /// Returns the subject.
    fn subject(self) -> impl Future<Output = CasSubject>;
}

impl CasSource<CasSubject> for CasSubject {
    async fn subject(self) -> CasSubject {
        self
    }
}

impl<B: CasBackend> CasSource<dyn CasBackend> for B {
    async fn subject(self) -> CasSubject {
        CasSubject::new(self)
    }
}

impl<F: Future<Output: Into<CasSubject>>> CasSource<dyn Future<Output = CasSubject>> for F {
    async fn subject(self) -> CasSubject {
        self.await.into()
    }
}

/// A key of the backend. Calls are retried while the backend reports that they were not applied, which is allowed under
/// contention.
#[derive(Clone)]
pub(crate) struct Hand {
    backend: Arc<dyn CasBackend>,
    key: Key,
}

impl Hand {
    const PATIENCE: u32 = 1_000;

    pub(crate) async fn read(&self) -> VersionedRecord {
        for _ in 0..Self::PATIENCE {
            if let Some(seen) = applied("read", self.backend.read(&self.key).await).await {
                return seen;
            }
        }
        panic!("refused {} times in a row", Self::PATIENCE)
    }

    pub(crate) async fn swap(&self, seen: Version, next: Option<&Record>) -> bool {
        for _ in 0..Self::PATIENCE {
            if let Some(done) = applied("swap", self.backend.swap(&self.key, seen, next).await).await {
                return done;
            }
        }
        panic!("refused {} times in a row", Self::PATIENCE)
    }

    /// Overwrites the current record, and returns the version of the write.
    pub(crate) async fn put(&self, record: &Record) -> Version {
        self.write(Some(record)).await;
        self.version().await
    }

    pub(crate) async fn delete(&self) {
        self.write(None).await;
    }

    pub(crate) async fn version(&self) -> Version {
        self.read().await.version
    }

    pub(crate) async fn record(&self) -> Option<Record> {
        self.read().await.record
    }

    pub(crate) async fn now(&self) -> Timestamp {
        self.read().await.now
    }

    /// Returns `None` if the backend does not report the time.
    pub(crate) async fn try_now(&self) -> Option<Timestamp> {
        self.backend.read(&self.key).await.ok().map(|seen| seen.now)
    }

    /// Purges the backend until no record is left to remove. Does nothing if the backend has no `purge` capability.
    pub(crate) async fn purge(&self) {
        let Some(purge) = self.backend.capabilities().purge else { return };
        while must("purge", purge.purge(1_000).await) > 0 {}
    }

    /// Returns a record that is held for an hour from the backend's time. `n` distinguishes such records.
    pub(crate) async fn sample(&self, n: u32) -> Record {
        held(self.now().await, n)
    }

    async fn write(&self, next: Option<&Record>) {
        let seen = self.read().await;
        let done = self.swap(seen.version, next).await;
        assert!(done, "there is no other writer, but a swap with the version {} just read is refused", seen.version);
    }
}

pub(crate) fn held(now: Timestamp, n: u32) -> Record {
    Record {
        fencing: FencingToken(now.0),
        attempt: n,
        fingerprint: None,
        state: State::Consuming { owner: OwnerToken(n.into()), until: now + HOUR, taken_over: None },
        expires_at: now + 2 * HOUR,
        first_seen: now,
        updated_at: now,
        display: None,
    }
}

async fn applied<T>(verb: &str, result: Result<T, StoreError>) -> Option<T> {
    match result {
        Err(e) if e.kind() == StoreErrorKind::NotApplied => {
            tokio::time::sleep(MS).await;
            None
        }
        other => Some(must(verb, other)),
    }
}
