//! The record that a store keeps for a key.
mod bytes;

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use crate::{FencingToken, Fingerprint, OwnerToken, StoreError, StoreErrorKind};

/// A point in time on the store's clock, in µs since 1970. Records use no other clock.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// A time later than any other. Fits a signed 64-bit column.
    pub const FOREVER: Self = Self(i64::MAX as u64);
}

/// Saturates at [`Timestamp::FOREVER`]. Rounds a fraction of a µs up.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        // Every step of the protocol adds times, so this avoids 128-bit arithmetic.
        let part = u64::from(by.subsec_nanos().div_ceil(1_000));
        let by = by.as_secs().saturating_mul(1_000_000).saturating_add(part);
        Self(self.0.saturating_add(by)).min(Self::FOREVER)
    }
}

/// Returns zero if `earlier` is later than `self`.
impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The record of one key. [`to_bytes`](Self::to_bytes) and [`from_bytes`](Self::from_bytes) convert the stored form.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The fencing number of the last grant.
    pub fencing: FencingToken,
    /// The number of runs granted so far, without refunded ones.
    pub attempt: u32,
    /// The fingerprint of the payload in the last claim.
    pub fingerprint: Option<Fingerprint>,
    /// The state of the key.
    pub state: State,
    /// The end of the record. From this time on every operation treats the record as absent, and it may be purged.
    pub expires_at: Timestamp,
    /// The time of the first claim. A store need not keep `first_seen` and `updated_at` of a consumed record. Both are
    /// then equal to the fencing number, which is the earliest possible time of the grant.
    pub first_seen: Timestamp,
    /// The time of the last write.
    pub updated_at: Timestamp,
    /// The part of the key that operators may see. Not kept in consumed and vacant records.
    pub display: Option<Arc<str>>,
}

impl Record {
    /// The upper limit of a lease: 31 days. A consuming record with a longer lease was not written by this protocol,
    /// and would block its key.
    pub const LONGEST_LEASE: Duration = Duration::from_secs(31 * 24 * 3600);

    /// Checks a decoded record for contradictions between its fields.
    ///
    /// # Errors
    /// Returns [`Corrupt`](StoreErrorKind::Corrupt) with the name of the field. Leave such a record unchanged.
    pub fn check(&self) -> Result<(), StoreError> {
        let corrupt = |what: &str| Err(StoreError::new(StoreErrorKind::Corrupt).because(what));
        if self.fencing.0 >= 1 << 53 {
            return corrupt("field `fencing` is 2^53 or more");
        }
        match self.state {
            State::Consuming { until, .. } if until > self.updated_at + Self::LONGEST_LEASE => {
                corrupt("field `until` is more than 31 days after the record's last write")
            }
            _ => Ok(()),
        }
    }
}

/// The state of a record. A missing record is [`StateKind::Absent`]. Complete by definition: a new state would change the
/// protocol.
#[derive(Clone, PartialEq)]
pub enum State {
    /// No owner holds the key. The record keeps the attempts and the last error.
    Vacant {
        /// The earliest time of the next claim.
        not_before: Timestamp,
        /// The error of the last run.
        error: Arc<str>,
        /// The grant of an owner whose lease expired, if the run that took over was released before it began. The next
        /// run has to know about the takeover.
        taken_over: Option<FencingToken>,
    },
    /// An owner holds the key and may be running the handler.
    Consuming {
        /// The current owner.
        owner: OwnerToken,
        /// The end of the lease.
        until: Timestamp,
        /// The grant of the previous owner, if this owner took over an expired lease.
        taken_over: Option<FencingToken>,
    },
    /// The key was completed within its retention.
    Consumed {
        /// The owner that completed the key. A repeated completion by this owner succeeds.
        owner: OwnerToken,
        /// The encoded result, if one was kept.
        value: Option<Arc<[u8]>>,
    },
    /// The last run failed with an error that is not worth a retry.
    Failed {
        /// The error of the last run.
        error: Arc<str>,
    },
    /// The key is out of attempts, or parked.
    Dead {
        /// The error of the last run.
        error: Arc<str>,
    },
}

/// Prints only the length of results, because they may contain secrets, and only a part of owner tokens.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vacant { not_before, error, taken_over } => f
                .debug_struct("Vacant")
                .field("not_before", not_before)
                .field("error", error)
                .field("taken_over", taken_over)
                .finish(),
            Self::Consuming { owner, until, taken_over } => f
                .debug_struct("Consuming")
                .field("owner", owner)
                .field("until", until)
                .field("taken_over", taken_over)
                .finish(),
            Self::Consumed { owner, value } => f
                .debug_struct("Consumed")
                .field("owner", owner)
                .field("value_bytes", &value.as_ref().map(|v| v.len()))
                .finish(),
            Self::Failed { error } => f.debug_struct("Failed").field("error", error).finish(),
            Self::Dead { error } => f.debug_struct("Dead").field("error", error).finish(),
        }
    }
}

/// The name of a [`State`], without its fields. Complete by definition, like [`State`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StateKind {
    /// There is no record, or the record has expired.
    Absent,
    /// See [`State::Vacant`].
    Vacant,
    /// See [`State::Consuming`].
    Consuming,
    /// See [`State::Consumed`].
    Consumed,
    /// See [`State::Failed`].
    Failed,
    /// See [`State::Dead`].
    Dead,
}

impl State {
    /// Returns the kind of this state.
    #[must_use]
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Vacant { .. } => StateKind::Vacant,
            Self::Consuming { .. } => StateKind::Consuming,
            Self::Consumed { .. } => StateKind::Consumed,
            Self::Failed { .. } => StateKind::Failed,
            Self::Dead { .. } => StateKind::Dead,
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Vacant => "vacant",
            Self::Consuming => "consuming",
            Self::Consumed => "consumed",
            Self::Failed => "failed",
            Self::Dead => "dead",
        })
    }
}
