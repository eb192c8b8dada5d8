//! What a store keeps under a key.
mod bytes;

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use crate::{Fencing, Fingerprint, OwnerToken, StoreError, StoreErrorKind};

/// A time on the store's own clock, in µs since 1970; the only clock a record knows.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Micros(pub u64);

impl Micros {
    /// Later than any other time. Fits a signed 64-bit column.
    pub const FOREVER: Self = Self(i64::MAX as u64);
}

/// Saturates at [`Micros::FOREVER`]; a part of a µs counts as a whole one.
impl Add<Duration> for Micros {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        // Every step adds some: not by 128 bits.
        let part = u64::from(by.subsec_nanos().div_ceil(1_000));
        let by = by.as_secs().saturating_mul(1_000_000).saturating_add(part);
        Self(self.0.saturating_add(by)).min(Self::FOREVER)
    }
}

/// Zero if `earlier` is later.
impl Sub for Micros {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// One key's record. [`to_bytes`](Self::to_bytes) and [`from_bytes`](Self::from_bytes) are its stored form.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The last grant's number.
    pub fencing: Fencing,
    /// Runs granted so far, refunds taken off.
    pub attempt: u32,
    /// Of the payload last claimed with.
    pub fingerprint: Option<Fingerprint>,
    /// What the key is in.
    pub state: State,
    /// From here on the record counts as absent everywhere and may be purged.
    pub expires_at: Micros,
    /// When the key was first claimed. A store need not keep this and the next one of a consumed record: both are then
    /// the grant's number, which is the time it was given at the earliest.
    pub first_seen: Micros,
    /// When the record was last written.
    pub updated_at: Micros,
    /// What operators may see of the key; not kept in consumed and vacant records.
    pub display: Option<Arc<str>>,
}

impl Record {
    /// Longer than any lease: a marker that says it is held for longer was not written by this protocol, and
    /// would block its key.
    pub const LONGEST_LEASE: Duration = Duration::from_secs(31 * 24 * 3600);

    /// What a reader of stored records checks after decoding: each field by itself may be right, and the record
    /// nonsense all the same.
    ///
    /// # Errors
    /// [`Corrupt`](StoreErrorKind::Corrupt) naming the field. Leave the record as it is.
    pub fn check(&self) -> Result<(), StoreError> {
        let corrupt = |what: &str| Err(StoreError::new(StoreErrorKind::Corrupt).because(what));
        if self.fencing.0 >= 1 << 53 {
            return corrupt("field `fencing` is 2^53 or more");
        }
        match self.state {
            State::Consuming { until, .. } if until > self.updated_at + Self::LONGEST_LEASE => {
                corrupt("field `until` lies more than 31 days behind the record's last write")
            }
            _ => Ok(()),
        }
    }
}

/// The states a record can be in; no record at all is [`StateKind::Absent`].
#[derive(Clone, PartialEq)]
pub enum State {
    /// A tombstone: nobody's, and what was learned so far.
    Vacant {
        /// No claim before this.
        not_before: Micros,
        /// Why the last run ended.
        error: Arc<str>,
        /// The grant of an owner that let its lease run out, if the run that took over was given back before it began:
        /// the next one has to know.
        taken_over: Option<Fencing>,
    },
    /// Somebody may be running.
    Consuming {
        /// Who.
        owner: OwnerToken,
        /// The lease's end.
        until: Micros,
        /// The grant of the owner this one took over from.
        taken_over: Option<Fencing>,
    },
    /// Done within the retention.
    Consumed {
        /// By whom: its owner asking again is told so.
        owner: OwnerToken,
        /// The encoded result, if one was kept.
        value: Option<Arc<[u8]>>,
    },
    /// Not worth another run.
    Failed {
        /// Why.
        error: Arc<str>,
    },
    /// Out of attempts, or parked.
    Dead {
        /// Why the last run did not succeed.
        error: Arc<str>,
    },
}

/// Results are never shown, they may be anything; owner tokens only in part.
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

/// A [`State`] without what is in it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StateKind {
    /// No record, or one past its time.
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
    /// Which state it is.
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
