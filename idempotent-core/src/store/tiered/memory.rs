//! A fast tier in this process.
use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{Fact, FastTier};
use crate::clock::later;
use crate::{Clock, Key, StoreError, SystemClock};

/// Facts in a map of this process, for tests and services of one process: another process does not hear of a key that
/// is forgotten here. Cheap to clone: clones share the facts.
///
/// Bounded, by entries and by the bytes of the results. What is oldest goes first.
#[derive(Clone, Debug)]
pub struct MemoryTier {
    shelves: Arc<Mutex<Generations>>,
    /// On one shelf.
    most: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryTier {
    /// Of results, on one shelf.
    const MOST_BYTES: usize = 32 << 20;

    /// Of at most 10,000 entries, by the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::holding(10_000, Arc::new(SystemClock::new()))
    }

    /// Of at most `entries` (two at least) and 64 MiB of results, by this clock.
    #[must_use]
    pub fn holding(entries: usize, clock: Arc<dyn Clock>) -> Self {
        Self { shelves: Arc::default(), most: (entries / 2).max(1), clock }
    }

    /// Forgets everything, bars too: as a server does that is emptied.
    pub fn flush(&self) {
        *self.shelves() = Generations::default();
    }

    fn shelves(&self) -> MutexGuard<'_, Generations> {
        // Each change is one call: a panic leaves nothing half done that would be a wrong fact.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryTier {
    fn default() -> Self {
        Self::new()
    }
}

/// Two of them: when the young one is full it becomes the old one, and what was on that is dropped.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u128, Kept>,
    young_bytes: usize,
    old: HashMap<u128, Kept>,
}

#[derive(Debug)]
struct Kept {
    /// A bar has none.
    fact: Option<Fact>,
    until: Instant,
}

impl Generations {
    fn find(&self, hash: u128, now: Instant) -> Option<&Kept> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).filter(|kept| kept.until > now)
    }

    fn put(&mut self, hash: u128, kept: Kept, most: usize) {
        let bytes = kept.fact.as_ref().map_or(0, bytes);
        if self.young.len() >= most || self.young_bytes + bytes > MemoryTier::MOST_BYTES {
            self.old = take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.old.remove(&hash);
        self.young.insert(hash, kept);
    }
}

fn bytes(fact: &Fact) -> usize {
    fact.value.as_ref().map_or(0, |value| value.len())
}

#[async_trait]
impl FastTier for MemoryTier {
    async fn recall(&self, key: &Key) -> Result<Option<Fact>, StoreError> {
        Ok(self.shelves().find(key.hash(), self.clock.now()).and_then(|kept| kept.fact.clone()))
    }

    async fn remember(&self, key: &Key, fact: &Fact, keep: Duration) -> Result<bool, StoreError> {
        let (mut shelves, now) = (self.shelves(), self.clock.now());
        let takes = bytes(fact) <= Self::MOST_BYTES && shelves.find(key.hash(), now).is_none();
        if takes {
            let kept = Kept { fact: Some(fact.clone()), until: later(now, keep) };
            shelves.put(key.hash(), kept, self.most);
        }
        Ok(takes)
    }

    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError> {
        let kept = Kept { fact: None, until: later(self.clock.now(), keep) };
        self.shelves().put(key.hash(), kept, self.most);
        Ok(())
    }
}
