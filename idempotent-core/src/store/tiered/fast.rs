//! What a fast tier is, and what it keeps.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::Inspected;
use crate::{Claim, ClaimRequest, Fencing, Fingerprint, Key, Micros, OwnerToken, Record, State, StoreError, protocol};

/// That a key was consumed, as the durable store said.
#[derive(Clone, PartialEq)]
pub struct Fact {
    /// The grant it was consumed under.
    pub fencing: Fencing,
    /// Of the payload it was consumed with, if the record has one.
    pub fingerprint: Option<Fingerprint>,
    /// The encoded result, if one was kept.
    pub value: Option<Arc<[u8]>>,
    /// Whoever reads it then or later takes no notice of it. By the wall clocks of the processes that write and read,
    /// and so beside the time to live: a write that was held up on its way would begin to live late.
    pub until: Micros,
}

impl Fact {
    /// What a record, read by the durable store's own time after `asked`, allows to say until it ends or is `max_age`
    /// old. Nothing if the key is not consumed: no other state lasts.
    pub(super) fn of(seen: Inspected, asked: Micros, max_age: Duration) -> Option<Self> {
        let Inspected { record: Record { fencing, fingerprint, state, expires_at, .. }, now } = seen;
        let State::Consumed { value, .. } = state else { return None };
        Some(Self { fencing, fingerprint, value, until: asked + max_age.min(expires_at - now) })
    }

    /// What the protocol says to a claim on such a record; `None` from `until` on.
    pub(super) fn answer(self, request: &ClaimRequest, now: Micros) -> Option<Claim> {
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

/// Results are never shown, they may be anything.
impl fmt::Debug for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fact")
            .field("fencing", &self.fencing)
            .field("fingerprint", &self.fingerprint)
            .field("value_bytes", &self.value.as_ref().map(|value| value.len()))
            .field("until", &self.until)
            .finish()
    }
}

/// Keeps facts for a while, near at hand: the upper half of a [`TieredStore`](crate::TieredStore). It may lose any of
/// them at any time, and be emptied as a whole: then the durable store is asked again.
///
/// Under a key lies a fact, a bar (no fact, and none may be put there), or nothing. In Redis: `GET`,
/// `SET key fact PX keep NX`, `SET key bar PX keep`.
///
/// # Errors
/// Each method fails as a [`Store`](crate::Store) does. The tiered store counts what failed, and lets the durable store
/// decide.
///
/// # Cancellation
/// A call that takes too long is dropped. It may be applied all the same, at any later time.
#[async_trait]
pub trait FastTier: fmt::Debug + Send + Sync + 'static {
    /// The fact under `key`; `None` if a bar is there, or nothing.
    ///
    /// # Errors
    /// Also where what is there cannot be read: never a guess.
    async fn recall(&self, key: &Key) -> Result<Option<Fact>, StoreError>;

    /// Keeps the fact for at most `keep`, which is not zero, if nothing is there; says whether it did. One step: a fact
    /// must replace neither another fact nor a bar.
    ///
    /// # Errors
    /// As [`recall`](Self::recall).
    async fn remember(&self, key: &Key, fact: &Fact, keep: Duration) -> Result<bool, StoreError>;

    /// Replaces whatever is there by a bar, which stands for at least `keep`.
    ///
    /// # Errors
    /// As [`recall`](Self::recall).
    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError>;
}
