//! A cache of consumed keys, so that a duplicate of a cached key costs no command.
//!
//! The cache holds only keys that stay consumed for their retention, never keys in flight or absent keys. Other
//! processes announce forgotten keys over pub/sub. Without a subscription the cache stays empty. No entry is older than
//! [`CacheOptions::max_age`]. Keys without a result and a fingerprint are in a compact table.
pub(crate) mod compact;

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idempotent_core::{Claim, ClaimRequest, Clock, Consumed, FencingToken, Fingerprint, Key};
use quick_cache::Weighter;

use self::compact::{CompactEntry, CompactTable};
use crate::record::LONGEST;

/// Limits for the cache of consumed keys in a process. See `RedisStoreBuilder::cache`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Maximum number of keys without a result. Keys with a known fingerprint count apart, up to the same number.
    /// Default: 100,000.
    ///
    /// A key takes about 31 bytes, and one with a fingerprint about 96 bytes. The memory for keys without a fingerprint is
    /// allocated with the first of them.
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

impl CacheEntry {
    /// Returns the entry in its compact form, unless it has a result or a known fingerprint.
    fn compact(&self) -> Option<CompactEntry> {
        let has_no_fingerprint = match self.payload {
            PayloadKnowledge::Known(Some(_)) => return None,
            PayloadKnowledge::Known(None) => true,
            PayloadKnowledge::Unknown => false,
        };
        self.value.is_none().then_some(CompactEntry { fencing: self.fencing, has_no_fingerprint })
    }
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

/// The cached keys, each in one of both forms.
struct CachedKeys {
    /// The keys without a result and without a known fingerprint.
    compact: CompactTable,
    whole: EntryMap,
}

impl CachedKeys {
    fn get(&self, hash: u128, clock: &dyn Clock) -> Option<(PayloadKnowledge, Consumed)> {
        if let Some(CompactEntry { fencing, has_no_fingerprint }) = self.compact.get(hash, || clock.now()) {
            let payload = if has_no_fingerprint { PayloadKnowledge::Known(None) } else { PayloadKnowledge::Unknown };
            return Some((payload, Consumed { fencing, value: None }));
        }
        let entry = self.whole.get(&hash).filter(|entry| entry.until > clock.now())?;
        Some((entry.payload, Consumed { fencing: entry.fencing, value: entry.value }))
    }

    fn insert(&self, hash: u128, entry: CacheEntry) {
        if entry.compact().is_some_and(|compact| self.compact.insert(hash, compact, entry.until)) {
            drop(self.whole.remove(&hash));
        } else {
            self.compact.remove(hash);
            self.whole.insert(hash, entry);
        }
    }

    fn remove(&self, hash: u128) {
        self.compact.remove(hash);
        drop(self.whole.remove(&hash));
    }

    fn clear(&self) {
        self.compact.clear();
        self.whole.clear();
    }
}

pub(crate) struct ConsumedCache {
    entries: Option<CachedKeys>,
    options: CacheOptions,
    clock: Arc<dyn Clock>,
    /// Number of connections that receive notifications.
    listeners: AtomicUsize,
    /// Rises with each event that may invalidate a reply in flight.
    generation: AtomicU64,
    /// Number of claims that the cache has answered.
    hits: AtomicU64,
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
            let whole =
                EntryMap::with(options.keys, bytes as u64, EntryWeighter, BuildHasherDefault::default(), lifecycle);
            CachedKeys { compact: CompactTable::new(options.keys, clock.now()), whole }
        });
        let (listeners, generation, hits) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { entries, options: options.unwrap_or_default(), clock, listeners, generation, hits }
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
        let (payload, consumed) = self.entries.as_ref()?.get(request.key.hash(), &*self.clock)?;
        let agrees = match (payload, request.fingerprint) {
            (_, None) | (PayloadKnowledge::Known(None), _) => true,
            (PayloadKnowledge::Known(Some(kept)), Some(new)) => kept == new,
            (PayloadKnowledge::Unknown, Some(_)) => return None,
        };
        if self.listeners.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(if agrees { Claim::Consumed(consumed) } else { Claim::Mismatch })
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
            entries.remove(key.hash());
        }
    }

    /// Removes a key, given as text. Clears the cache if the text is not a key.
    pub(crate) fn forget(&self, key: &[u8]) {
        let Some(entries) = &self.entries else { return };
        self.generation.fetch_add(1, Ordering::AcqRel);
        match std::str::from_utf8(key).ok().and_then(Key::from_text) {
            Some(key) => entries.remove(key.hash()),
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
        self.entries.as_ref().map_or(0, |entries| entries.compact.len() + entries.whole.len())
    }

    /// Returns the number of claims that the cache has answered.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Identity, Scene, SystemClock};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn request(fingerprint: Option<Fingerprint>) -> ClaimRequest {
        let key = Identity::new(Scene::Mq, "work", "k").key("tests").unwrap();
        ClaimRequest { fingerprint, ..ClaimRequest::new(key).unwrap() }
    }

    fn consumed(fencing: u64, value: Option<&[u8]>) -> Consumed {
        Consumed { fencing: FencingToken(fencing), value: value.map(Arc::from) }
    }

    #[test]
    fn the_latest_form_of_a_key_replaces_the_other_form() {
        let cache = ConsumedCache::new(Some(CacheOptions::default()), Arc::new(SystemClock::new()));
        cache.set_listening(true);
        let [one, two] = ["1", "2"].map(|payload| Some(Fingerprint::of_bytes(payload)));
        let ask = |fingerprint| cache.lookup(&request(fingerprint));
        let key = request(None).key;
        for (number, payload, value, with_one, with_two) in [
            (1, PayloadKnowledge::Known(one), None, true, false),
            (2, PayloadKnowledge::Known(None), None, true, true),
            (3, PayloadKnowledge::Known(None), Some(&b"result"[..]), true, true),
            (4, PayloadKnowledge::Known(None), None, true, true),
        ] {
            let kept = consumed(number, value);
            cache.insert(&key, cache.generation(), HOUR, payload, &kept);
            assert_eq!((cache.len(), ask(None)), (1, Some(Claim::Consumed(kept.clone()))));
            let answer = |agrees| Some(if agrees { Claim::Consumed(kept.clone()) } else { Claim::Mismatch });
            assert_eq!((ask(one), ask(two)), (answer(with_one), answer(with_two)), "{payload:?}");
        }
        cache.insert(&key, cache.generation(), HOUR, PayloadKnowledge::Unknown, &consumed(5, None));
        assert_eq!((ask(None), ask(one)), (Some(Claim::Consumed(consumed(5, None))), None));
        assert_eq!(cache.hits(), 13);
    }

    #[test]
    fn both_forms_are_removed_by_a_forgotten_key_and_by_a_lost_connection() {
        for value in [None, Some(&b"result"[..])] {
            let cache = ConsumedCache::new(Some(CacheOptions::default()), Arc::new(SystemClock::new()));
            cache.set_listening(true);
            let key = request(None).key;
            let known = PayloadKnowledge::Known(None);
            let insert = |generation| cache.insert(&key, generation, HOUR, known, &consumed(1, value));
            insert(cache.generation());
            let before = cache.generation();
            cache.forget(key.as_str().as_bytes());
            assert_eq!(cache.len(), 0);
            insert(before);
            assert_eq!(cache.len(), 0, "the reply is older than the notification");
            insert(cache.generation());
            cache.set_listening(true);
            cache.set_listening(false);
            assert_eq!((cache.len(), cache.lookup(&request(None))), (0, None));
        }
    }
}
