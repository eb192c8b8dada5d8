//! The words between the executor and a store.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::{Entropy, EntropyError, Fingerprint, Key, OsEntropy, StateKind};

/// Names one attempt. Random, new for every claim that is not a repetition, never shared by a process. Never zero; that
/// is [`NOT_KEPT`](Self::NOT_KEPT).
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct OwnerToken(pub u128);

impl OwnerToken {
    /// Nobody's: a store may recognise the owner of a consumed record by the grant's number instead of keeping its
    /// token; its [`peek`](crate::Store::peek) then shows this. (Key, number) names one grant, so a completion that
    /// was told its number is enough. One that was not has to be kept with its token: its owner may ask again.
    pub const NOT_KEPT: Self = Self(0);
}

/// Shows the first 32 bits only: the whole token is the right to settle the run.
impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({:08x}…)", self.0 >> 96)
    }
}

/// Rises with every grant of a key: max(previous + 1, the store's clock in µs). A resource that keeps the
/// highest number it has seen and refuses smaller ones cannot be written by a worker that lost its lease.
/// Stays below 2^53, so that a script language with doubles can carry it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fencing(pub u64);

impl fmt::Display for Fencing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything a store needs to decide on a claim in one atomic step.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Which record.
    pub key: Key,
    /// Who asks. The same token asking again gets the same answer.
    pub owner: OwnerToken,
    /// How long the claim holds, counted by the store. Never zero.
    pub lease: Duration,
    /// What the payload looked like, if the caller wants a changed one refused.
    pub fingerprint: Option<Fingerprint>,
    /// Runs granted before the key is buried; 0 means no limit.
    pub max_attempts: u32,
    /// What becomes of a key whose owner let the lease run out.
    pub on_expiry: OnExpiry,
    /// How long a record that holds no result (vacant, failed, dead, or orphaned) is remembered.
    pub memory: Duration,
    /// What operators may see of the key; kept in consuming, failed and dead records.
    pub display: Option<Arc<str>>,
}

impl ClaimRequest {
    /// One by a new owner: a lease of 30 s, no limit of runs, no fingerprint, an hour's memory. For those who ask a store
    /// themselves; an executor makes its own.
    ///
    /// # Errors
    /// If the system has no randomness for the owner's token.
    pub fn new(key: Key) -> Result<Self, EntropyError> {
        Ok(Self {
            key,
            // Zero stands for a token that was not kept.
            owner: OwnerToken(OsEntropy.bits()?.max(1)),
            lease: Duration::from_secs(30),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            memory: Duration::from_secs(3600),
            display: None,
        })
    }
}

/// What becomes of a key whose owner let the lease run out.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnExpiry {
    /// The next claim takes it over, with a higher fencing number. The default.
    #[default]
    Takeover,
    /// Buried for a person to look at: nobody can tell whether the effect happened.
    Park,
}

/// What a store answers to a claim. Complete by definition: the executor must treat each answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// The caller may run.
    Acquired(Grant),
    /// Somebody else may be running.
    InFlight(InFlight),
    /// Done within the retention.
    Consumed(Consumed),
    /// Failed before, and said it is not worth another run.
    Failed {
        /// The last error, as the executor recorded it.
        error: Arc<str>,
    },
    /// Out of attempts, or parked.
    Dead(Dead),
    /// Free, but not before a time.
    Delayed {
        /// How long from now.
        rest: Duration,
    },
    /// Same key, other fingerprint.
    Mismatch,
}

/// Why a key is in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InFlight {
    /// A live lease, with this much left of it.
    Leased {
        /// What is left of the lease.
        rest: Duration,
    },
    /// Somebody is claiming it right now, or holds it in an open transaction: nobody knows for how long.
    Busy,
}

/// What is known of a key that is done.
#[derive(Clone, PartialEq)]
pub struct Consumed {
    /// The grant it was done under.
    pub fencing: Fencing,
    /// The encoded result, if one was kept.
    pub value: Option<Arc<[u8]>>,
}

/// Results are never shown, they may be anything.
impl fmt::Debug for Consumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.value.as_ref().map(|value| value.len());
        f.debug_struct("Consumed").field("fencing", &self.fencing).field("value_bytes", &bytes).finish()
    }
}

/// What is known of a key that is buried.
#[derive(Clone, Debug, PartialEq)]
pub struct Dead {
    /// Runs granted in all.
    pub attempts: u32,
    /// The last grant; (key, fencing) names the dead letter, so copies of it collapse.
    pub fencing: Fencing,
    /// Why the last run did not succeed.
    pub error: Arc<str>,
}

/// What was granted. The executor makes a [`Lease`](crate::Lease) of it: only the executor knows when the
/// claim was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// This grant's number.
    pub fencing: Fencing,
    /// 1 for the first run of a key.
    pub attempt: u32,
    /// How long it holds without a renewal.
    pub lease: Duration,
    /// The grant of the owner that let its lease run out, if this took over.
    pub taken_over: Option<Fencing>,
}

/// The proof of a claim: every later step is guarded by it, together with the state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Held {
    /// Which record.
    pub key: Key,
    /// Whose.
    pub owner: OwnerToken,
    /// The grant's number; `None` while the answer to the claim is not known. A copy of a claim that was held up
    /// on its way may be granted again after its run was overtaken and the key freed: same token, another grant,
    /// and the overtaken run must not settle it.
    pub fencing: Option<Fencing>,
}

impl Held {
    /// A claim whose answer is not known.
    #[must_use]
    pub fn unanswered(key: Key, owner: OwnerToken) -> Self {
        Self { key, owner, fencing: None }
    }

    /// Whether a record with this owner and number is what was granted.
    #[must_use]
    pub fn is(&self, owner: OwnerToken, fencing: Fencing) -> bool {
        self.owner == owner && self.fencing.is_none_or(|granted| granted == fencing)
    }
}

/// How a successful run is recorded.
#[derive(Clone, PartialEq)]
pub struct Completion {
    /// The encoded result to replay, if one is to be kept.
    pub value: Option<Arc<[u8]>>,
    /// How long duplicates are recognised, counted from now by the store.
    pub retain: Duration,
}

/// Results are never shown, they may be anything.
impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.value.as_ref().map(|value| value.len());
        f.debug_struct("Completion").field("value_bytes", &bytes).field("retain", &self.retain).finish()
    }
}

/// How a run that did not succeed is put down.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// What becomes of the key.
    pub verdict: Verdict,
    /// A vacant key may not be claimed before this has passed.
    pub delay: Duration,
    /// How long the record is remembered after that.
    pub memory: Duration,
    /// The last error, kept for operators and for duplicates of a failed or dead key.
    pub error: Arc<str>,
}

/// Picked by the executor, which knows attempt and limit; a store only guards it by state and owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// No retry limit: the marker goes, without a trace.
    Delete,
    /// Free again, attempts remembered.
    Vacate,
    /// Free again, this attempt not counted. With nothing left to remember, no earlier attempt, no takeover and no
    /// delay, the marker goes.
    Refund,
    /// Not worth another run.
    Fail,
    /// Out of attempts.
    Bury,
}

/// What became of a renewal, completion or release.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Settled {
    /// Applied, now or by an earlier copy of the same request.
    Done,
    /// Information, not an error to retry: this attempt is over.
    Lost {
        /// What is there instead.
        now: StateKind,
    },
}
