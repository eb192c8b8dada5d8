//! An in-memory fast tier.
use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{CacheTier, CachedOutcome};
use crate::clock::later;
use crate::{Clock, Key, StoreError, SystemClock};

/// A fast tier in a map of this process, for tests and for services that run as one process.
///
/// Other processes do not learn about a key that is forgotten here. Clones share the facts and are cheap.
///
/// The tier is bounded by its number of entries and by the bytes of the results. It evicts the oldest entries first.
#[derive(Clone, Debug)]
pub struct MemoryTier {
    generations: Arc<Mutex<Generations>>,
    /// The maximum number of entries in one generation.
    generation_limit: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryTier {
    /// The maximum number of bytes of the results in one generation.
    const GENERATION_BYTES: usize = 32 << 20;

    /// Creates a tier with at most 10,000 entries and the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::holding(10_000, Arc::new(SystemClock::new()))
    }

    /// Creates a tier with the given clock and at most `entries` entries (at least two) and 64 MiB of results.
    #[must_use]
    pub fn holding(entries: usize, clock: Arc<dyn Clock>) -> Self {
        Self { generations: Arc::default(), generation_limit: (entries / 2).max(1), clock }
    }

    /// Removes all facts and bars, as a server that is flushed does.
    pub fn flush(&self) {
        *self.generations() = Generations::default();
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        // Each change is one call, so a panic cannot leave a wrong fact.
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryTier {
    fn default() -> Self {
        Self::new()
    }
}

/// Two generations of entries. When the young generation is full, it replaces the old one, whose entries are dropped.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u128, CacheEntry>,
    young_bytes: usize,
    old: HashMap<u128, CacheEntry>,
}

#[derive(Debug)]
struct CacheEntry {
    /// The fact, or `None` for a bar.
    fact: Option<CachedOutcome>,
    until: Instant,
}

impl Generations {
    fn find(&self, hash: u128, now: Instant) -> Option<&CacheEntry> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).filter(|kept| kept.until > now)
    }

    fn put(&mut self, hash: u128, kept: CacheEntry, limit: usize) {
        let bytes = kept.fact.as_ref().map_or(0, bytes);
        if self.young.len() >= limit || self.young_bytes + bytes > MemoryTier::GENERATION_BYTES {
            self.old = take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.old.remove(&hash);
        self.young.insert(hash, kept);
    }
}

fn bytes(fact: &CachedOutcome) -> usize {
    fact.value.as_ref().map_or(0, |value| value.len())
}

#[async_trait]
impl CacheTier for MemoryTier {
    async fn recall(&self, key: &Key) -> Result<Option<CachedOutcome>, StoreError> {
        Ok(self.generations().find(key.hash(), self.clock.now()).and_then(|kept| kept.fact.clone()))
    }

    async fn remember(&self, key: &Key, fact: &CachedOutcome, keep: Duration) -> Result<bool, StoreError> {
        let (mut generations, now) = (self.generations(), self.clock.now());
        let accepts = bytes(fact) <= Self::GENERATION_BYTES && generations.find(key.hash(), now).is_none();
        if accepts {
            let kept = CacheEntry { fact: Some(fact.clone()), until: later(now, keep) };
            generations.put(key.hash(), kept, self.generation_limit);
        }
        Ok(accepts)
    }

    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError> {
        let kept = CacheEntry { fact: None, until: later(self.clock.now(), keep) };
        self.generations().put(key.hash(), kept, self.generation_limit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FencingToken, Timestamp};

    #[test]
    fn a_generation_is_full_after_32_mib_of_results() {
        let (mut generations, now) = (Generations::default(), SystemClock::new().now());
        let half: Arc<[u8]> = vec![0; MemoryTier::GENERATION_BYTES / 2].into();
        let put = |generations: &mut Generations, hash, value: &Arc<[u8]>| {
            let (fencing, fingerprint, value) = (FencingToken(1), None, Some(value.clone()));
            let fact = Some(CachedOutcome { fencing, fingerprint, value, until: Timestamp::FOREVER });
            generations.put(hash, CacheEntry { fact, until: now + Duration::from_secs(60) }, 100);
        };
        put(&mut generations, 1, &half);
        put(&mut generations, 2, &half);
        // The first two fill a generation exactly, and the others begin the next one.
        put(&mut generations, 3, &Arc::from([0]));
        put(&mut generations, 4, &half);
        for hash in 1..=4 {
            assert!(generations.find(hash, now).is_some(), "{hash}");
        }
        put(&mut generations, 5, &half);
        assert!(generations.find(1, now).is_none() && generations.find(4, now).is_some());
    }
}
