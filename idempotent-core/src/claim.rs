//! Request and response types of the [`Store`](crate::Store) trait.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::{Entropy, EntropyError, Fingerprint, Key, OsEntropy, StateKind};

/// A random token that identifies one attempt.
///
/// Every claim that is not a repetition uses a new token, and processes never share one. A token is never zero: zero is
/// [`NOT_KEPT`](Self::NOT_KEPT).
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct OwnerToken(pub u128);

impl OwnerToken {
    /// The owner of a consumed record whose token the store did not keep.
    ///
    /// A store may identify the owner of a consumed record by the grant's fencing number instead of its token. Its
    /// [`peek`](crate::Store::peek) then returns this value. The pair (key, fencing number) identifies one grant, so a
    /// completion that carries a fencing number needs no token. A completion without one must be stored with its token,
    /// because its owner may repeat the request.
    pub const NOT_KEPT: Self = Self(0);
}

/// Prints only the first 32 bits, because the whole token is the right to settle the run.
impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({:08x}…)", self.0 >> 96)
    }
}

/// A fencing token: a number that increases with every grant of a key.
///
/// The number is max(previous + 1, the store's clock in µs). A resource that remembers the highest number it has seen
/// and rejects lower ones cannot be written by a worker that lost its lease. The number stays below 2^53, so that a
/// script language whose only numbers are doubles can represent it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FencingToken(pub u64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The input of a claim: everything a store needs to decide in one atomic step.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The key to claim.
    pub key: Key,
    /// The owner that claims. A repeated request with the same token gets the same answer.
    pub owner: OwnerToken,
    /// The duration of the lease, measured by the store. Never zero.
    pub lease: Duration,
    /// The fingerprint of the payload, if the store must reject a changed payload.
    pub fingerprint: Option<Fingerprint>,
    /// The maximum number of runs before the key is dead-lettered. 0 means no limit.
    pub max_attempts: u32,
    /// The rule for a key whose owner let its lease expire.
    pub on_expiry: OnExpiry,
    /// The time for which the store keeps a record without a result (vacant, failed, dead or orphaned).
    pub retention: Duration,
    /// The part of the key that operators may see. Kept in consuming, failed and dead records.
    pub display: Option<Arc<str>>,
}

impl ClaimRequest {
    /// Creates a request by a new owner: a lease of 30 s, no limit of runs, no fingerprint, a retention of one hour.
    ///
    /// Use this to call a store directly. An executor builds its own requests.
    ///
    /// # Errors
    /// Returns an error if the system cannot provide randomness for the owner token.
    pub fn new(key: Key) -> Result<Self, EntropyError> {
        Ok(Self {
            key,
            // Zero is reserved for a token that the store did not keep.
            owner: OwnerToken(OsEntropy.bits()?.max(1)),
            lease: Duration::from_secs(30),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: Duration::from_secs(3600),
            display: None,
        })
    }
}

/// The rule for a key whose owner let its lease expire.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnExpiry {
    /// The next claim takes the key over, with a higher fencing number. The default.
    #[default]
    Takeover,
    /// The key becomes dead, so that an operator decides: the effect may or may not have happened.
    Park,
}

/// The answer of a store to a claim. Complete by definition: the executor must handle each answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// The caller may run the handler.
    Acquired(Grant),
    /// Another caller may be running the handler.
    InFlight(InFlight),
    /// The key was completed within its retention.
    Consumed(Consumed),
    /// An earlier run failed with an error that is not worth a retry.
    Failed {
        /// The last error, as recorded by the executor.
        error: Arc<str>,
    },
    /// The key is out of attempts, or parked.
    Dead(Dead),
    /// The key is free, but may not be claimed yet.
    Delayed {
        /// The time until the key may be claimed.
        rest: Duration,
    },
    /// The key is known with a different fingerprint.
    Mismatch,
}

/// The reason why a key is in flight. Complete by definition: a store knows the end of a lease, or does not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InFlight {
    /// Another owner holds a lease that has not expired.
    Leased {
        /// The remaining time of the lease.
        rest: Duration,
    },
    /// Another caller is claiming the key at this moment, or holds it in an open transaction. The remaining time is
    /// unknown.
    Busy,
}

/// The recorded result of a completed key.
#[derive(Clone, PartialEq)]
pub struct Consumed {
    /// The fencing number of the grant that completed the key.
    pub fencing: FencingToken,
    /// The encoded result, if the record has one.
    pub value: Option<Arc<[u8]>>,
}

/// Prints the length of the result only, because a result may contain secrets.
impl fmt::Debug for Consumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.value.as_ref().map(|value| value.len());
        f.debug_struct("Consumed").field("fencing", &self.fencing).field("value_bytes", &bytes).finish()
    }
}

/// The record of a dead key.
#[derive(Clone, Debug, PartialEq)]
pub struct Dead {
    /// The number of runs granted in total.
    pub attempts: u32,
    /// The number of the last grant. The pair (key, fencing) identifies the dead letter, so copies can be deduplicated.
    pub fencing: FencingToken,
    /// The error of the last run.
    pub error: Arc<str>,
}

/// The grant of a successful claim.
///
/// The executor turns a grant into a [`Lease`](crate::Lease), because only the executor knows when it sent the claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The fencing number of this grant.
    pub fencing: FencingToken,
    /// The number of this attempt, starting with 1.
    pub attempt: u32,
    /// The duration of the lease until the first renewal.
    pub lease: Duration,
    /// The grant of the previous owner, if this grant took over an expired lease.
    pub taken_over: Option<FencingToken>,
}

/// The proof of a claim. The store checks every later step against this proof and the state of the record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimHandle {
    /// The claimed key.
    pub key: Key,
    /// The owner of the claim.
    pub owner: OwnerToken,
    /// The fencing number of the grant, or `None` while the answer to the claim is unknown.
    ///
    /// The owner token alone is not enough. A delayed copy of a claim may be granted a second time, after its first run
    /// was overtaken and the key was freed. Both grants have the same token, and the overtaken run must not settle the
    /// second one.
    pub fencing: Option<FencingToken>,
    /// The terms of the grant, if this is the first grant of its record and no renewal was sent since.
    pub terms: Option<GrantTerms>,
}

/// The terms of the first grant of a record.
///
/// The whole record of such a grant follows from the terms, the owner and the fencing number. A store may therefore
/// complete the run by one comparison of the whole record. The terms are a hint only: another caller may have changed the
/// record since, so a store whose record differs must decide by owner and fencing number as for a handle without terms.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GrantTerms {
    /// The duration of the lease, as claimed.
    pub lease: Duration,
    /// The time for which the store keeps the record after the lease, as claimed.
    pub retention: Duration,
    /// The fingerprint of the payload, as claimed.
    pub fingerprint: Option<Fingerprint>,
    /// The part of the key that operators may see, as claimed.
    pub display: Option<Arc<str>>,
}

impl ClaimHandle {
    /// Creates the proof of a claim whose answer is unknown.
    #[must_use]
    pub fn unanswered(key: Key, owner: OwnerToken) -> Self {
        Self { key, owner, fencing: None, terms: None }
    }

    /// Creates the proof of a claim that was granted.
    #[must_use]
    pub fn granted(request: &ClaimRequest, grant: &Grant) -> Self {
        let terms = (grant.attempt == 1 && grant.taken_over.is_none()).then(|| GrantTerms {
            lease: grant.lease,
            retention: request.retention,
            fingerprint: request.fingerprint,
            display: request.display.clone(),
        });
        Self { key: request.key.clone(), owner: request.owner, fencing: Some(grant.fencing), terms }
    }

    /// Returns whether a record with this owner and fencing number belongs to this claim.
    #[must_use]
    pub fn is(&self, owner: OwnerToken, fencing: FencingToken) -> bool {
        self.owner == owner && self.fencing.is_none_or(|granted| granted == fencing)
    }
}

/// The result of a successful run, as sent to the store.
#[derive(Clone, PartialEq)]
pub struct Completion {
    /// The encoded result to replay to duplicates, if the policy keeps results.
    pub value: Option<Arc<[u8]>>,
    /// The time for which duplicates are recognised, measured by the store from the completion.
    pub retain: Duration,
}

/// Prints the length of the result only, because a result may contain secrets.
impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.value.as_ref().map(|value| value.len());
        f.debug_struct("Completion").field("value_bytes", &bytes).field("retain", &self.retain).finish()
    }
}

/// The end of a run that did not succeed, as sent to the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// The new state of the key.
    pub kind: ReleaseKind,
    /// The delay before a vacant key may be claimed again.
    pub delay: Duration,
    /// The time for which the store keeps the record after the delay.
    pub retention: Duration,
    /// The last error, kept for operators and for duplicates of a failed or dead key.
    pub error: Arc<str>,
}

/// The kind of a release. The executor chooses the kind, since it knows the attempt and the limit. The store checks only
/// state and owner. Complete by definition: a store applies each kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReleaseKind {
    /// Deletes the record without a trace. Used if there is no limit of runs.
    Delete,
    /// Frees the key and keeps the count of attempts.
    Vacate,
    /// Frees the key and does not count this attempt. Deletes the record if it has no earlier attempt, no takeover and
    /// no delay to remember.
    Refund,
    /// Marks the key as failed: the error is not worth a retry.
    MarkFailed,
    /// Marks the key as dead: no attempts are left.
    MarkDead,
}

/// The answer of a store to a renewal, completion or release. Complete by definition: the write was applied, or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Settled {
    /// The step was applied, now or by an earlier copy of the same request.
    Done,
    /// This attempt no longer owns the key. Do not retry: the attempt is over.
    Lost {
        /// The current state of the key.
        now: StateKind,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Identity, Scene};

    #[test]
    fn only_the_first_grant_of_a_record_has_terms() {
        let request = ClaimRequest::new(Identity::new(Scene::Mq, "work", "k").key("test").unwrap()).unwrap();
        let first = Grant { fencing: FencingToken(1), attempt: 1, lease: request.lease, taken_over: None };
        assert!(ClaimHandle::granted(&request, &first).terms.is_some());
        let second = Grant { attempt: 2, ..first.clone() };
        let takeover = Grant { taken_over: Some(FencingToken(0)), ..first };
        let has_terms = |grant| ClaimHandle::granted(&request, grant).terms.is_some();
        assert_eq!([&second, &takeover].map(has_terms), [false, false]);
        assert_eq!(FencingToken(7).to_string(), "7");
    }
}
