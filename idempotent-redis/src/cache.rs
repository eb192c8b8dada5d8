//! A cache of consumed keys, so that a duplicate of a cached key costs no command.
//!
//! The cache holds only keys that stay consumed for their retention, never keys in flight or absent keys. Other
//! processes announce forgotten keys over pub/sub. Without a subscription the cache stays empty. No entry is older than
//! [`CacheOptions::max_age`].
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idempotent_core::{Claim, ClaimRequest, Clock, Consumed, FencingToken, Fingerprint, Key};
use quick_cache::Weighter;

use crate::record::LONGEST;

/// Limits for the cache of consumed keys in a process. See `RedisStoreBuilder::cache`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Maximum number of keys without a result. Default: 100,000.
    pub keys: usize,
    /// Additional memory for results, in bytes. Default: 16 MiB.
    pub result_bytes: usize,
    /// Maximum age of an entry before the server is consulted again. Default: 60 s.
    pub max_age: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { keys: 100_000, result_bytes: 16 << 20, max_age: Duration::from_secs(60) }
    }
}

/// Size of an entry without its result, in bytes. The unit of the memory limit.
const ENTRY: usize = 96;
/// Fraction of the result memory that one result may use. Larger results are not cached.
const LARGEST: usize = 16;

#[derive(Clone)]
struct CacheEntry {
    fencing: FencingToken,
    payload: PayloadKnowledge,
    value: Option<Arc<[u8]>>,
    until: Instant,
}

/// The known fingerprint of the payload that consumed a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PayloadKnowledge {
    /// The fingerprint, or `None` if the call had none.
    Known(Option<Fingerprint>),
    /// Unknown, because completions do not carry a fingerprint.
    Unknown,
}

#[derive(Clone)]
struct EntryWeighter;

impl Weighter<u128, CacheEntry> for EntryWeighter {
    fn weight(&self, _: &u128, entry: &CacheEntry) -> u64 {
        (ENTRY + entry.value.as_ref().map_or(0, |value| value.len())) as u64
    }
}

/// A hasher for keys, which are hashes already.
#[derive(Clone, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u128(&mut self, hash: u128) {
        // Both halves count, because the hash may be chosen by a user.
        self.0 = (hash >> 64) as u64 ^ (hash as u64).rotate_left(32);
    }
}

type EntryMap = quick_cache::sync::Cache<u128, CacheEntry, EntryWeighter, BuildHasherDefault<KeyHasher>>;

pub(crate) struct ConsumedCache {
    entries: Option<EntryMap>,
    options: CacheOptions,
    clock: Arc<dyn Clock>,
    /// Number of connections that receive notifications.
    listeners: AtomicUsize,
    /// Rises with each event that may invalidate a reply in flight.
    generation: AtomicU64,
}

/// The state of the cache when a request was sent. The reply is cached only if no key was forgotten in the meantime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheGeneration {
    generation: u64,
    at: Instant,
}

impl ConsumedCache {
    pub(crate) fn new(options: Option<CacheOptions>, clock: Arc<dyn Clock>) -> Self {
        let entries = options.filter(|options| options.keys > 0).map(|options| {
            let bytes = options.keys.saturating_mul(ENTRY).saturating_add(options.result_bytes);
            let lifecycle = quick_cache::sync::DefaultLifecycle::default();
            EntryMap::with(options.keys, bytes as u64, EntryWeighter, BuildHasherDefault::default(), lifecycle)
        });
        let (listeners, generation) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { entries, options: options.unwrap_or_default(), clock, listeners, generation }
    }

    /// Returns whether the cache is enabled, so that replies should include the remaining retention.
    pub(crate) fn is_enabled(&self) -> bool {
        self.entries.is_some()
    }

    pub(crate) fn generation(&self) -> Option<CacheGeneration> {
        self.entries.as_ref()?;
        Some(CacheGeneration { generation: self.generation.load(Ordering::Acquire), at: self.clock.now() })
    }

    /// Returns the reply to a claim if the cache knows it.
    pub(crate) fn lookup(&self, request: &ClaimRequest) -> Option<Claim> {
        let entry = self.entries.as_ref()?.get(&request.key.hash())?;
        let agrees = match (entry.payload, request.fingerprint) {
            (_, None) | (PayloadKnowledge::Known(None), _) => true,
            (PayloadKnowledge::Known(Some(kept)), Some(new)) => kept == new,
            (PayloadKnowledge::Unknown, Some(_)) => return None,
        };
        if self.listeners.load(Ordering::Acquire) == 0 || entry.until <= self.clock.now() {
            return None;
        }
        Some(if agrees {
            Claim::Consumed(Consumed { fencing: entry.fencing, value: entry.value })
        } else {
            Claim::Mismatch
        })
    }

    /// Stores a consumed key for `rest`, counted from the time of the request.
    pub(crate) fn insert(
        &self,
        key: &Key,
        generation: Option<CacheGeneration>,
        rest: Duration,
        payload: PayloadKnowledge,
        consumed: &Consumed,
    ) {
        let (Some(entries), Some(generation)) = (&self.entries, generation) else { return };
        let large = consumed.value.as_ref().is_some_and(|value| value.len() > self.options.result_bytes / LARGEST);
        if large || self.listeners.load(Ordering::Acquire) == 0 {
            return;
        }
        let until = generation.at + rest.min(self.options.max_age).min(LONGEST);
        let entry = CacheEntry { fencing: consumed.fencing, payload, value: consumed.value.clone(), until };
        entries.insert(key.hash(), entry);
        // Checked after the insertion, so that a concurrent `forget` finds the entry.
        if self.generation.load(Ordering::Acquire) != generation.generation {
            entries.remove(&key.hash());
        }
    }

    /// Removes a key, given as text. Clears the cache if the text is not a key.
    pub(crate) fn forget(&self, key: &[u8]) {
        let Some(entries) = &self.entries else { return };
        self.generation.fetch_add(1, Ordering::AcqRel);
        match std::str::from_utf8(key).ok().and_then(Key::from_text) {
            Some(key) => drop(entries.remove(&key.hash())),
            None => entries.clear(),
        }
    }

    /// Counts the connections that receive notifications. Clears the cache when one is lost, because notifications may
    /// have been missed.
    pub(crate) fn set_listening(&self, listens: bool) {
        if listens {
            self.listeners.fetch_add(1, Ordering::AcqRel);
            return;
        }
        self.listeners.fetch_sub(1, Ordering::AcqRel);
        self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(entries) = &self.entries {
            entries.clear();
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.as_ref().map_or(0, quick_cache::sync::Cache::len)
    }
}

impl fmt::Debug for ConsumedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumedCache")
            .field("on", &self.is_enabled())
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}
