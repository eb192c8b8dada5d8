//! The interface of a fast tier and the facts that it keeps.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::InspectedRecord;
use crate::{
    Claim, ClaimRequest, FencingToken, Fingerprint, Key, OwnerToken, Record, State, StoreError, Timestamp, protocol,
};

/// The fact that a key was consumed, as reported by the durable store.
#[derive(Clone, PartialEq)]
pub struct CachedOutcome {
    /// The fencing number of the grant that completed the key.
    pub fencing: FencingToken,
    /// The fingerprint of the completed payload, if the record has one.
    pub fingerprint: Option<Fingerprint>,
    /// The encoded result, if one was kept.
    pub value: Option<Arc<[u8]>>,
    /// The time from which on readers ignore the fact, by the wall clocks of the processes that write and read. The
    /// time to live alone is not enough, because it starts late if a write is delayed.
    pub until: Timestamp,
}

impl CachedOutcome {
    /// Builds a fact from a record that was read after `asked`. The fact ends with the record, or `max_age` after
    /// `asked`.
    ///
    /// Returns `None` if the key is not consumed, since no other state is final.
    pub(super) fn of(seen: InspectedRecord, asked: Timestamp, max_age: Duration) -> Option<Self> {
        let InspectedRecord { record: Record { fencing, fingerprint, state, expires_at, .. }, now } = seen;
        let State::Consumed { value, .. } = state else { return None };
        Some(Self { fencing, fingerprint, value, until: asked + max_age.min(expires_at - now) })
    }

    /// Answers a claim by the protocol, as for the original record. Returns `None` from `until` on.
    pub(super) fn answer(self, request: &ClaimRequest, now: Timestamp) -> Option<Claim> {
        let Self { fencing, fingerprint, value, until } = self;
        let state = State::Consumed { owner: OwnerToken::NOT_KEPT, value };
        let record = Record {
            fencing,
            attempt: 0,
            fingerprint,
            state,
            expires_at: until,
            first_seen: now,
            updated_at: now,
            display: None,
        };
        (until > now).then(|| protocol::claim(Some(&record), request, now).0)
    }
}

/// Prints the length of the result only, because a result may contain secrets.
impl fmt::Debug for CachedOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedOutcome")
            .field("fencing", &self.fencing)
            .field("fingerprint", &self.fingerprint)
            .field("value_bytes", &self.value.as_ref().map(|value| value.len()))
            .field("until", &self.until)
            .finish()
    }
}

/// Keeps facts for a while: the fast tier of a [`TieredStore`](crate::TieredStore).
///
/// A fast tier may lose any fact at any time, or all of them. The durable store then answers.
///
/// A key holds a fact, a bar (which prevents facts), or nothing. In Redis, the three methods are `GET`,
/// `SET key fact PX keep NX` and `SET key bar PX keep`.
///
/// # Errors
/// Each method fails like a [`Store`](crate::Store). The tiered store counts the failure and lets the durable store
/// decide.
///
/// # Cancellation
/// A call that takes too long is dropped. Its effect may still be applied at any later time.
#[async_trait]
pub trait CacheTier: fmt::Debug + Send + Sync + 'static {
    /// Returns the fact of `key`, or `None` if the key holds a bar or nothing.
    ///
    /// # Errors
    /// Returns an error if the stored value cannot be read, and never a guess.
    async fn recall(&self, key: &Key) -> Result<Option<CachedOutcome>, StoreError>;

    /// Keeps the fact for at most `keep` (never zero) if the key holds nothing, and returns whether it did.
    ///
    /// This is one atomic step: a fact must not replace another fact or a bar.
    ///
    /// # Errors
    /// Same as [`recall`](Self::recall).
    async fn remember(&self, key: &Key, fact: &CachedOutcome, keep: Duration) -> Result<bool, StoreError>;

    /// Replaces the value of `key`, if any, by a bar that lasts for at least `keep`.
    ///
    /// # Errors
    /// Same as [`recall`](Self::recall).
    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError>;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Identity, OnExpiry, Scene};

    #[test]
    fn a_fact_answers_until_its_end() {
        let request = ClaimRequest {
            key: Identity::new(Scene::Mq, "orders", "o-1").key("tests").unwrap(),
            owner: OwnerToken(1),
            lease: Duration::from_secs(30),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: Duration::from_secs(60),
            display: None,
        };
        let fact = CachedOutcome { fencing: FencingToken(1), fingerprint: None, value: None, until: Timestamp(10) };
        assert!(matches!(fact.clone().answer(&request, Timestamp(9)), Some(Claim::Consumed(_))));
        assert!(fact.answer(&request, Timestamp(10)).is_none());
    }
}
