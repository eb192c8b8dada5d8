//! A fast tier over a durable store.
mod ability;
mod counts;
mod fast;
mod memory;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::counts::Counters;
pub use self::counts::TierCounts;
pub use self::fast::{Fact, FastTier};
pub use self::memory::MemoryTier;
use super::{Abilities, Store};
use crate::clock::{later, unless};
use crate::{Claim, ClaimRequest, Clock, Completion, Held, Key, Record, Release, Settled, StoreError, SystemClock};

/// A durable store that decides, and a fast tier above it that answers duplicates of what is done. Cheap to clone:
/// clones share both.
///
/// The fast tier keeps facts: that a key was consumed, with its result. It learns of them only from the durable store,
/// after a completion and after a claim that found the key consumed, and keeps each for at most
/// [`max_age`](TieredStoreBuilder::max_age) and never beyond the retention. A claim asks it first; where it knows, the
/// durable store is not asked at all. It holds nothing in flight and nothing about absent keys. So it may be flushed,
/// cut off or restarted at any time, under running handlers as well: all that is lost is speed. It costs a fresh run a
/// look-up before the claim and, after the completion, one reading of the record and one write.
///
/// ```
/// use idempotent_core::{Executor, MemoryStore, MemoryTier, TieredStore};
///
/// // In production the durable store is a database, and the fast tier a server that all processes share.
/// let store = TieredStore::new(MemoryStore::new(), MemoryTier::new());
/// let executor = Executor::builder(store.clone()).build()?;
/// assert_eq!(store.counts().hits, 0);
/// # Ok::<(), idempotent_core::PolicyError>(())
/// ```
///
/// # What remains
/// - Above a durable store without [`Inspect`](super::Inspect) the fast tier stays empty: what is left of a retention
///   cannot be told.
/// - A fact ends with its record, by the clocks of this process and of the durable store, which are taken to run at one
///   pace; a clock set in between moves its end by as much, and to no more than `max_age` in all.
/// - [`Admin::forget`](super::Admin::forget) bars the key in the fast tier before and after, for `max_age`: no fact read
///   before comes back after. Where the fast tier cannot be told, is emptied just then, or where a key is forgotten past
///   this store, it may answer for a forgotten key for up to `max_age` more. A clock that differs between processes adds
///   to that no more than it differs.
///
/// # Errors
/// Those of the durable store. An error of the fast tier fails no call; [`counts`](Self::counts) tells of it.
///
/// # Cancellation
/// As with the durable store. A claim or completion dropped behind the durable store's answer leaves the fast tier
/// without that fact, and the next duplicate repairs it.
///
/// # Abilities
/// Those of the durable store.
#[derive(Clone, Debug)]
pub struct TieredStore(Arc<Tiers>);

#[derive(Debug)]
struct Tiers {
    durable: Arc<dyn Store>,
    fast: Arc<dyn FastTier>,
    max_age: Duration,
    patience: Duration,
    clock: Arc<dyn Clock>,
    counters: Counters,
}

/// Sets up a [`TieredStore`].
#[derive(Clone, Debug)]
pub struct TieredStoreBuilder {
    durable: Arc<dyn Store>,
    fast: Arc<dyn FastTier>,
    max_age: Duration,
    patience: Duration,
    clock: Arc<dyn Clock>,
}

impl TieredStoreBuilder {
    /// How long a fact is believed without asking the durable store again. Zero keeps nothing. The same in all processes
    /// over one fast tier: a forgotten key is barred for this long.
    ///
    /// # Default
    /// 60 s
    #[must_use]
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    /// How long a call waits for the fast tier before it goes on without it. A claim waits once, or twice where it
    /// repairs.
    ///
    /// # Default
    /// 100 ms
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The clock that ages facts and measures patience. It need not be the durable store's.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> TieredStore {
        let Self { durable, fast, max_age, patience, clock } = self;
        TieredStore(Arc::new(Tiers { durable, fast, max_age, patience, clock, counters: Counters::default() }))
    }
}

/// What the fast tier says to a claim.
enum Recalled {
    Known(Claim),
    Unknown,
    /// It is down, slow, or keeps what cannot be read.
    Failed,
}

impl TieredStore {
    /// With defaults.
    #[must_use]
    pub fn new(durable: impl Store, fast: impl FastTier) -> Self {
        Self::builder(durable, fast).build()
    }

    /// To set ages or a clock.
    #[must_use]
    pub fn builder(durable: impl Store, fast: impl FastTier) -> TieredStoreBuilder {
        TieredStoreBuilder {
            durable: Arc::new(durable),
            fast: Arc::new(fast),
            max_age: Duration::from_secs(60),
            patience: Duration::from_millis(100),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// What the fast tier was good for, since this store was built.
    #[must_use]
    pub fn counts(&self) -> TierCounts {
        self.0.counters.read()
    }

    async fn recall(&self, request: &ClaimRequest) -> Recalled {
        let recalled = match self.patiently(self.0.fast.recall(&request.key)).await {
            Some(fact) => fact
                .and_then(|fact| fact.answer(request, self.0.clock.wall()))
                .map_or(Recalled::Unknown, Recalled::Known),
            None => Recalled::Failed,
        };
        self.0.counters.asked(matches!(recalled, Recalled::Known(_)));
        recalled
    }

    /// Tells the fast tier what the durable store says of a key that is done; whether it took it.
    async fn inform(&self, key: &Key) -> bool {
        let Some(inspect) = self.0.durable.abilities().inspect else { return false };
        let told = self.patiently(async {
            // Before the durable store is asked: what is left of the retention counts from here, or from later.
            let asked = self.0.clock.wall();
            let Some(fact) = inspect.inspect(key).await?.and_then(|seen| Fact::of(seen, asked, self.0.max_age)) else {
                return Ok(false);
            };
            let keep = fact.until - self.0.clock.wall();
            if keep.is_zero() { Ok(false) } else { self.0.fast.remember(key, &fact, keep).await }
        });
        told.await.unwrap_or(false)
    }

    async fn informed_of_duplicate(&self, key: &Key) {
        if self.inform(key).await {
            self.0.counters.repaired();
        }
    }

    async fn informed_of_completion(&self, key: &Key) {
        if self.inform(key).await {
            self.0.counters.remembered();
        }
    }

    /// `None` where the fast tier failed or took too long.
    async fn patiently<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
        let clock = &self.0.clock;
        match unless(call, || clock.sleep_until(later(clock.now(), self.0.patience))).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(_)) | Err(()) => {
                self.0.counters.failed();
                None
            }
        }
    }
}

#[async_trait]
impl Store for TieredStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let recalled = self.recall(request).await;
        if let Recalled::Known(claim) = recalled {
            return Ok(claim);
        }
        let claim = self.0.durable.claim(request).await?;
        if matches!((&claim, recalled), (Claim::Consumed(_), Recalled::Unknown)) {
            self.informed_of_duplicate(&request.key).await;
        }
        Ok(claim)
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        self.0.durable.renew(held, lease).await
    }

    async fn complete(&self, held: &Held, completion: &Completion) -> Result<Settled, StoreError> {
        let settled = self.0.durable.complete(held, completion).await?;
        if settled == Settled::Done {
            // Not with what was asked for: an earlier completion may be what stands.
            self.informed_of_completion(&held.key).await;
        }
        Ok(settled)
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        self.0.durable.release(held, release).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.durable.peek(key).await
    }

    fn abilities(&self) -> Abilities<'_> {
        self.forwarded()
    }
}
