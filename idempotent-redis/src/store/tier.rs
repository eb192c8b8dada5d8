//! Redis as the fast tier of a durable store.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    CacheTier, CachedOutcome, FencingToken, Fingerprint, Key, StoreError, StoreErrorKind, Timestamp,
};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::{ReplyBody, ScriptReply};
use crate::record::{VERSION, foreign};

/// The fast tier of a [`TieredStore`](idempotent_core::TieredStore) whose records are in another store.
///
/// A duplicate costs one command on this server and none in the other store. Losing this server costs only speed.
/// Create a tier with [`RedisStore::fast_tier`]. A clone is cheap and shares the connections of the original.
///
/// The tier uses the keys that records would have. Do not use one database with the same namespace for both.
///
/// ```no_run
/// # async fn doc() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_core::{MemoryStore, TieredStore};
/// use idempotent_redis::RedisStore;
///
/// let durable = MemoryStore::new(); // or SQLite, PostgreSQL, MySQL
/// let redis = RedisStore::connect("redis://localhost").await?;
/// let store = TieredStore::new(durable, redis.fast_tier());
/// # drop(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisTier(RedisStore);

const SEEN: u8 = 1;
const VALUED: u8 = 2;
/// No retries, because the tier must not be slower than the store.
const BUDGET: Duration = Duration::ZERO;

impl RedisStore {
    /// Returns this server as the fast tier of another store.
    #[must_use]
    pub fn fast_tier(&self) -> RedisTier {
        RedisTier(self.clone())
    }
}

impl RedisTier {
    async fn ask(&self, call: &ScriptCall) -> Result<Option<Vec<u8>>, StoreError> {
        let ScriptReply { body, .. } = self.0.0.call(call, BUDGET).await?;
        match body {
            ReplyBody::Tagged(reply) => Ok(Some(reply)),
            _ => Ok(None),
        }
    }
}

#[async_trait]
impl CacheTier for RedisTier {
    async fn recall(&self, key: &Key) -> Result<Option<CachedOutcome>, StoreError> {
        match self.ask(&ScriptCall::recall(key)).await?.as_deref() {
            Some([b'R', VERSION, b'B']) | None => Ok(None),
            Some([b'R', VERSION, b'T', fact @ ..]) => decode(fact).map(Some).ok_or_else(|| {
                StoreError::new(StoreErrorKind::Corrupt).because("the fact of a tiered store is cut off")
            }),
            _ => Err(foreign("the value was not written by a tiered store")),
        }
    }

    async fn remember(&self, key: &Key, fact: &CachedOutcome, keep: Duration) -> Result<bool, StoreError> {
        Ok(self.ask(&ScriptCall::remember(key, encode(fact), keep)).await?.is_none())
    }

    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError> {
        self.ask(&ScriptCall::bar(key, keep)).await.map(drop)
    }
}

/// Encodes flags, fencing number, expiry (8 bytes each, big-endian), fingerprint and value.
fn encode(fact: &CachedOutcome) -> Vec<u8> {
    let mut out = vec![VERSION, b'T'];
    let seen = if fact.fingerprint.is_some() { SEEN } else { 0 };
    out.push(seen | if fact.value.is_some() { VALUED } else { 0 });
    out.extend(fact.fencing.0.to_be_bytes());
    out.extend(fact.until.0.to_be_bytes());
    out.extend(fact.fingerprint.iter().flat_map(|fingerprint| fingerprint.to_bytes()));
    out.extend(fact.value.iter().flat_map(|value| value.iter()));
    out
}

fn decode(bytes: &[u8]) -> Option<CachedOutcome> {
    let ([flags], rest) = bytes.split_first_chunk()?;
    let (fencing, rest) = rest.split_first_chunk()?;
    let (until, rest) = rest.split_first_chunk()?;
    let (fingerprint, value) = match flags & SEEN {
        0 => (None, rest),
        _ => rest.split_first_chunk().map(|(bytes, rest)| (Some(Fingerprint::from_bytes(*bytes)), rest))?,
    };
    let value = match flags & VALUED {
        0 if value.is_empty() => None,
        0 => return None,
        _ => Some(Arc::from(value)),
    };
    let (fencing, until) = (FencingToken(u64::from_be_bytes(*fencing)), Timestamp(u64::from_be_bytes(*until)));
    (flags & !(SEEN | VALUED) == 0).then_some(CachedOutcome { fencing, fingerprint, value, until })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_decodes_as_encoded_and_a_truncated_one_does_not() {
        let fingerprint = Fingerprint::of_bytes("payload");
        for fingerprint in [None, Some(fingerprint)] {
            for value in [None, Some(b"".as_slice()), Some(b"\0\xff".as_slice())] {
                let (fencing, until) = (FencingToken(17), Timestamp(1 << 60));
                let fact = CachedOutcome { fencing, fingerprint, value: value.map(Arc::from), until };
                let bytes = encode(&fact);
                assert_eq!(decode(&bytes[2..]), Some(fact));
                for cut in 2..19 {
                    assert_eq!(decode(&bytes[2..cut]), None);
                }
            }
        }
    }
}
