//! Fast tiers that are down, lose data, stall, or pause on demand.
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{CacheTier, CachedOutcome, MemoryTier};
use idempotent::{Key, StoreError, StoreErrorKind};
use tokio::sync::Semaphore;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    Well,
    /// Refuses every call.
    Down,
    /// Answers no call.
    Stalls,
    /// Answers and takes half of what it should; the other half is lost, every second time with an error.
    Forgets,
    /// Emptied before each third call.
    Flushed,
}

/// Seeded: the same moods for the same calls.
#[derive(Clone, Debug)]
pub(crate) struct Weak {
    pub(crate) inner: MemoryTier,
    mood: Arc<Mutex<Mood>>,
    calls: Arc<AtomicU64>,
}

impl Weak {
    pub(crate) fn new(inner: MemoryTier, mood: Mood) -> Self {
        Self { inner, mood: Arc::new(Mutex::new(mood)), calls: Arc::default() }
    }

    pub(crate) fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Returns whether the call is to be made, or the error of a failure.
    async fn passes(&self) -> Result<bool, StoreError> {
        let call = self.calls.fetch_add(1, SeqCst);
        let dice = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Well => Ok(true),
            Mood::Down => Err(down()),
            Mood::Stalls => pending().await,
            Mood::Forgets if dice.is_multiple_of(4) => Err(down()),
            Mood::Forgets => Ok(dice % 4 != 1),
            Mood::Flushed => {
                if dice.is_multiple_of(3) {
                    self.inner.flush();
                }
                Ok(true)
            }
        }
    }
}

fn down() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied).because("injected: the fast tier is down")
}

#[async_trait]
impl CacheTier for Weak {
    async fn recall(&self, key: &Key) -> Result<Option<CachedOutcome>, StoreError> {
        if self.passes().await? { self.inner.recall(key).await } else { Ok(None) }
    }

    async fn remember(&self, key: &Key, fact: &CachedOutcome, keep: Duration) -> Result<bool, StoreError> {
        if self.passes().await? { self.inner.remember(key, fact, keep).await } else { Ok(false) }
    }

    /// Taken by one that forgets, too: where a bar is not, a forgotten key is answered for a while, as the docs say and
    /// tests of their own show.
    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError> {
        if *self.mood.lock().unwrap() != Mood::Forgets {
            self.passes().await?;
        }
        self.inner.bar(key, keep).await
    }
}

/// A tier that blocks facts, or answers, until the test releases them.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) inner: MemoryTier,
    before: Arc<Semaphore>,
    after: Arc<Semaphore>,
}

const WIDE: usize = 1_000;

impl Gate {
    /// Facts wait at the door.
    pub(crate) fn before(inner: MemoryTier) -> Self {
        Self { inner, before: Arc::new(Semaphore::new(0)), after: Arc::new(Semaphore::new(WIDE)) }
    }

    /// Creates a tier that stores facts and loses the answers.
    pub(crate) fn after(inner: MemoryTier) -> Self {
        Self { inner, before: Arc::new(Semaphore::new(WIDE)), after: Arc::new(Semaphore::new(0)) }
    }

    pub(crate) fn open(&self) {
        self.before.add_permits(WIDE);
        self.after.add_permits(WIDE);
    }
}

#[async_trait]
impl CacheTier for Gate {
    async fn recall(&self, key: &Key) -> Result<Option<CachedOutcome>, StoreError> {
        self.inner.recall(key).await
    }

    /// Applies a request like a server, even after its caller is dropped.
    async fn remember(&self, key: &Key, fact: &CachedOutcome, keep: Duration) -> Result<bool, StoreError> {
        let (gate, key, fact) = (self.clone(), key.clone(), fact.clone());
        let sent = tokio::spawn(async move {
            gate.before.acquire().await.unwrap().forget();
            let taken = gate.inner.remember(&key, &fact, keep).await;
            gate.after.acquire().await.unwrap().forget();
            taken
        });
        sent.await.unwrap()
    }

    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError> {
        self.inner.bar(key, keep).await
    }
}
