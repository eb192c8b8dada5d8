//! Consumed keys this process knows of: a duplicate of one costs no command.
//!
//! Only what is settled for its retention is kept: never a key in flight, never one that is absent. What an operator
//! forgets is told over pub/sub; while nothing can be heard, nothing is kept, and nothing is kept longer than
//! [`CacheOptions::max_age`].
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idempotent_core::{Claim, ClaimRequest, Clock, Consumed, Fencing, Fingerprint, Key};
use quick_cache::Weighter;

use crate::record::LONGEST;

/// How many consumed keys a process keeps in mind. See `RedisStoreBuilder::cache`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Keys without a result that fit. Default: 100,000.
    pub keys: usize,
    /// Bytes of results beyond that. Default: 16 MiB.
    pub result_bytes: usize,
    /// The longest that one is believed without asking the server. Default: 60 s.
    pub max_age: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { keys: 100_000, result_bytes: 16 << 20, max_age: Duration::from_secs(60) }
    }
}

/// What an entry costs besides its result, in bytes: the unit of the bound.
const ENTRY: usize = 96;
/// A larger result is not worth its place: this part of all.
const LARGEST: usize = 16;

#[derive(Clone)]
struct CacheEntry {
    fencing: Fencing,
    payload: PayloadKnowledge,
    value: Option<Arc<[u8]>>,
    until: Instant,
}

/// What is known of the payload a key was consumed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PayloadKnowledge {
    /// Its fingerprint, or that none was given.
    Known(Option<Fingerprint>),
    /// A completion does not say.
    Unknown,
}

#[derive(Clone)]
struct EntryWeighter;

impl Weighter<u128, CacheEntry> for EntryWeighter {
    fn weight(&self, _: &u128, entry: &CacheEntry) -> u64 {
        (ENTRY + entry.value.as_ref().map_or(0, |value| value.len())) as u64
    }
}

/// Keys are hashes already.
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
        // Both halves, for keys whose hash somebody else made.
        self.0 = (hash >> 64) as u64 ^ (hash as u64).rotate_left(32);
    }
}

type EntryMap = quick_cache::sync::Cache<u128, CacheEntry, EntryWeighter, BuildHasherDefault<KeyHasher>>;

pub(crate) struct ConsumedCache {
    entries: Option<EntryMap>,
    options: CacheOptions,
    clock: Arc<dyn Clock>,
    /// Connections that hear what is forgotten.
    listeners: AtomicUsize,
    /// Rises with all that may contradict an answer under way.
    generation: AtomicU64,
}

/// When a question was asked: an answer to it is kept only if nothing was forgotten meanwhile.
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

    /// Whether answers are worth bringing along how long they hold.
    pub(crate) fn is_enabled(&self) -> bool {
        self.entries.is_some()
    }

    pub(crate) fn generation(&self) -> Option<CacheGeneration> {
        self.entries.as_ref()?;
        Some(CacheGeneration { generation: self.generation.load(Ordering::Acquire), at: self.clock.now() })
    }

    /// The answer to a claim, if it is known without asking.
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

    /// Keeps that a key is consumed, for `rest` from when that was asked.
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
        // Looked at after it is in: whoever forgets it from now on finds it there.
        if self.generation.load(Ordering::Acquire) != generation.generation {
            entries.remove(&key.hash());
        }
    }

    /// By the text of its key.
    pub(crate) fn forget(&self, key: &[u8]) {
        let Some(entries) = &self.entries else { return };
        self.generation.fetch_add(1, Ordering::AcqRel);
        match std::str::from_utf8(key).ok().and_then(Key::from_text) {
            Some(key) => drop(entries.remove(&key.hash())),
            None => entries.clear(),
        }
    }

    /// One more connection hears, or one less: then nobody knows what it has missed.
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
