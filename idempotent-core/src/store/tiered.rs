//! A fast tier in front of a durable store.
mod capability;
mod counts;
mod fast;
mod memory;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::counts::Counters;
pub use self::counts::TierCounts;
pub use self::fast::{CacheTier, CachedOutcome};
pub use self::memory::MemoryTier;
use super::{Store, StoreCapabilities};
use crate::clock::{later, unless};
use crate::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, Record, Release, Settled, StoreError, SystemClock,
};

/// A durable store with a fast tier in front of it. Clones share both and are cheap.
///
/// The durable store decides, and the fast tier answers duplicates of completed keys. The fast tier keeps facts: that a
/// key was consumed, with its result. It receives facts from the durable store only, after a completion and after a
/// claim that found the key consumed. It keeps each fact for at most [`max_age`](TieredStoreBuilder::max_age) and never
/// longer than the retention.
///
/// A claim asks the fast tier first. If the fast tier has a fact, the durable store receives no call. The fast tier
/// holds no keys in flight and nothing about absent keys. It may therefore be flushed, disconnected or restarted at any
/// time, even while handlers run: only speed is lost. A new key costs one lookup before the claim and, after the
/// completion, one read of the record and one write.
///
/// ```
/// use idempotent_core::{Executor, MemoryStore, MemoryTier, TieredStore};
///
/// // In production the durable store is a database, and the fast tier is a server that all processes share.
/// let store = TieredStore::new(MemoryStore::new(), MemoryTier::new());
/// let executor = Executor::builder(store.clone()).build()?;
/// assert_eq!(store.counts().hits, 0);
/// # Ok::<(), idempotent_core::PolicyError>(())
/// ```
///
/// # Limits
/// - The fast tier stays empty if the durable store has no [`Inspect`](super::Inspect), because the rest of a retention
///   is then unknown.
/// - A fact ends with its record if the clocks of this process and the durable store run at the same speed. A clock
///   that is set in between shifts the end by the same amount, but the fact never lives longer than `max_age`.
/// - [`Admin::forget`](super::Admin::forget) bars the key in the fast tier before and after the operation, for
///   `max_age`. A fact that was read before cannot return afterwards. A forgotten key may still be answered for up to
///   `max_age` in three cases: the bar does not reach the fast tier, the fast tier is flushed at that moment, or the
///   key is forgotten without this store. Clocks that differ between processes add at most their difference.
///
/// # Errors
/// Same as the durable store. An error of the fast tier never fails a call: [`counts`](Self::counts) reports it.
///
/// # Cancellation
/// Same as the durable store. If a claim or completion is dropped after the durable store's answer, the fast tier
/// misses that fact until the next duplicate adds it.
///
/// # Capabilities
/// Same as the durable store.
#[derive(Clone, Debug)]
pub struct TieredStore(Arc<TieredStoreInner>);

#[derive(Debug)]
struct TieredStoreInner {
    durable: Arc<dyn Store>,
    fast: Arc<dyn CacheTier>,
    max_age: Duration,
    patience: Duration,
    clock: Arc<dyn Clock>,
    counters: Counters,
}

/// A builder for a [`TieredStore`].
#[derive(Clone, Debug)]
pub struct TieredStoreBuilder {
    durable: Arc<dyn Store>,
    fast: Arc<dyn CacheTier>,
    max_age: Duration,
    patience: Duration,
    clock: Arc<dyn Clock>,
}

impl TieredStoreBuilder {
    /// Sets how long a fact is used without asking the durable store again. Zero disables the fast tier.
    ///
    /// All processes that share a fast tier must use the same value, since a forgotten key is barred for this long.
    ///
    /// # Default
    /// 60 s
    #[must_use]
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    /// Sets how long a call waits for the fast tier before it continues without it. A claim waits at most twice: for
    /// the lookup and for adding a missing fact.
    ///
    /// # Default
    /// 100 ms
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the clock that ages facts and limits waits. It may differ from the durable store's clock.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the store.
    #[must_use]
    pub fn build(self) -> TieredStore {
        let Self { durable, fast, max_age, patience, clock } = self;
        TieredStore(Arc::new(TieredStoreInner {
            durable,
            fast,
            max_age,
            patience,
            clock,
            counters: Counters::default(),
        }))
    }
}

/// The answer of the fast tier to a claim.
enum RecalledClaim {
    Known(Claim),
    Unknown,
    /// The fast tier is down, too slow, or holds a value that cannot be read.
    Failed,
}

impl TieredStore {
    /// Creates a tiered store with the default configuration.
    #[must_use]
    pub fn new(durable: impl Store, fast: impl CacheTier) -> Self {
        Self::builder(durable, fast).build()
    }

    /// Returns a builder for a tiered store with a custom age, patience or clock.
    #[must_use]
    pub fn builder(durable: impl Store, fast: impl CacheTier) -> TieredStoreBuilder {
        TieredStoreBuilder {
            durable: Arc::new(durable),
            fast: Arc::new(fast),
            max_age: Duration::from_secs(60),
            patience: Duration::from_millis(100),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Returns the counts of the fast tier since this store was built.
    #[must_use]
    pub fn counts(&self) -> TierCounts {
        self.0.counters.read()
    }

    async fn recall(&self, request: &ClaimRequest) -> RecalledClaim {
        let recalled = match self.within_patience(self.0.fast.recall(&request.key)).await {
            Some(fact) => fact
                .and_then(|fact| fact.answer(request, self.0.clock.wall()))
                .map_or(RecalledClaim::Unknown, RecalledClaim::Known),
            None => RecalledClaim::Failed,
        };
        self.0.counters.count_lookup(matches!(recalled, RecalledClaim::Known(_)));
        recalled
    }

    /// Copies a completed key from the durable store to the fast tier, and returns whether the fast tier accepted it.
    async fn copy_fact(&self, key: &Key) -> bool {
        let Some(inspect) = self.0.durable.capabilities().inspect else { return false };
        let copied = self.within_patience(async {
            // Read the clock before the call to the durable store: the rest of the retention counts from here or later.
            let asked = self.0.clock.wall();
            let Some(fact) =
                inspect.inspect(key).await?.and_then(|seen| CachedOutcome::of(seen, asked, self.0.max_age))
            else {
                return Ok(false);
            };
            let keep = fact.until - self.0.clock.wall();
            if keep.is_zero() { Ok(false) } else { self.0.fast.remember(key, &fact, keep).await }
        });
        copied.await.unwrap_or(false)
    }

    async fn repair_fact(&self, key: &Key) {
        if self.copy_fact(key).await {
            self.0.counters.count_repaired();
        }
    }

    async fn remember_completion(&self, key: &Key) {
        if self.copy_fact(key).await {
            self.0.counters.count_remembered();
        }
    }

    /// Waits for a call of the fast tier. Returns `None` if the call failed or took too long.
    async fn within_patience<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
        let clock = &self.0.clock;
        match unless(call, || clock.sleep_until(later(clock.now(), self.0.patience))).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(_)) | Err(()) => {
                self.0.counters.count_failed();
                None
            }
        }
    }
}

#[async_trait]
impl Store for TieredStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let recalled = self.recall(request).await;
        if let RecalledClaim::Known(claim) = recalled {
            return Ok(claim);
        }
        let claim = self.0.durable.claim(request).await?;
        if matches!((&claim, recalled), (Claim::Consumed(_), RecalledClaim::Unknown)) {
            self.repair_fact(&request.key).await;
        }
        Ok(claim)
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.0.durable.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        let settled = self.0.durable.complete(held, completion).await?;
        if settled == Settled::Done {
            // Read the record instead of using `completion`: the first result is kept, and it may be an earlier one.
            self.remember_completion(&held.key).await;
        }
        Ok(settled)
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.0.durable.release(held, release).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.durable.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.forwarded()
    }
}
