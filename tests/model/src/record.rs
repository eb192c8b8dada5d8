//! A record with few possible values, so that states without a relevant difference are equal.
//!
//! Times are reduced to "to come" and "past": the protocol compares them only with the current time, and any lease may
//! expire before any other action. Error texts and the times of the first claim and the last write are dropped, because
//! no decision depends on them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{FencingToken, Fingerprint, OwnerToken, Record, State, Timestamp};

/// The store's clock at every request. Fencing tokens and times are relative to it.
pub const NOW: u8 = 64;
/// `CLOCK` as a timestamp.
pub const CLOCK: Timestamp = Timestamp(NOW as u64);
/// A lease longer than all grants within one tick of the clock.
pub const LEASE: Duration = Duration::from_micros(1_000);
/// The retention of any other record.
pub const RETENTION: Duration = Duration::from_secs(1);

/// The record of the single key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Kept {
    /// The fencing token of the last grant.
    pub number: u8,
    /// The number of granted runs; always 1 without a limit.
    pub attempt: u8,
    /// The payload of the claim; 0 if payloads are not compared.
    pub payload: u8,
    /// True if its retention has not ended; after that, the record counts as absent.
    pub remembered: bool,
    /// The state of the key.
    pub state: Stage,
}

/// [`State`] in reduced form.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stage {
    /// No owner.
    Vacant {
        /// See [`State::Vacant`].
        taken_over: bool,
    },
    /// Held by an owner.
    Consuming {
        /// The owner.
        owner: u8,
        /// Inside the lease.
        live: bool,
        /// See [`State::Consuming`].
        taken_over: bool,
    },
    /// Completed.
    Consumed {
        /// The owner that completed the key, and thereby its result.
        owner: u8,
        /// The result.
        value: u8,
    },
    /// A permanent failure.
    Failed,
    /// Out of attempts.
    Dead,
}

/// The conversion between the reduced form and the protocol's.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The retention of a consuming record after its lease.
    pub retention: Duration,
    /// True if attempts are counted.
    pub limited: bool,
    /// The results by owner.
    pub values: Vec<Arc<[u8]>>,
    /// The error of all records that have one.
    pub error: Arc<str>,
}

impl Scale {
    fn retention(&self, stage: &Stage) -> Duration {
        if matches!(stage, Stage::Consuming { .. }) { self.retention } else { RETENTION }
    }

    /// Returns the record for the protocol.
    #[must_use]
    pub fn record(&self, kept: Kept) -> Record {
        let error = || self.error.clone();
        let over = |taken_over: bool| taken_over.then_some(FencingToken(0));
        let mut ends = CLOCK;
        let state = match kept.state {
            Stage::Vacant { taken_over } => {
                State::Vacant { not_before: CLOCK, error: error(), taken_over: over(taken_over) }
            }
            Stage::Consuming { owner, live, taken_over } => {
                let until = if live { CLOCK + LEASE } else { CLOCK };
                ends = until;
                State::Consuming { owner: OwnerToken(owner.into()), until, taken_over: over(taken_over) }
            }
            Stage::Consumed { owner, value } => {
                let value = Some(self.values[usize::from(value)].clone());
                State::Consumed { owner: OwnerToken(owner.into()), value }
            }
            Stage::Failed => State::Failed { error: error() },
            Stage::Dead => State::Dead { error: error() },
        };
        Record {
            fencing: FencingToken(kept.number.into()),
            attempt: kept.attempt.into(),
            fingerprint: fingerprint(kept.payload),
            state,
            expires_at: if kept.remembered { ends + self.retention(&kept.state) } else { CLOCK },
            first_seen: CLOCK,
            updated_at: CLOCK,
            display: None,
        }
    }

    /// Returns the record in the form of the model's states.
    ///
    /// # Panics
    /// If a record contains a value that the model cannot represent. The model must then be extended.
    #[must_use]
    pub fn kept(&self, record: &Record) -> Kept {
        // All fields are named, so that a new field needs a decision here.
        let Record { fencing, attempt, fingerprint, state, expires_at, first_seen: _, updated_at: _, display: _ } =
            record;
        let state = match state {
            State::Vacant { not_before, error: _, taken_over } => {
                assert!(*not_before <= CLOCK, "releases in this model ask for no delay");
                Stage::Vacant { taken_over: taken_over.is_some() }
            }
            State::Consuming { owner, until, taken_over } => {
                Stage::Consuming { owner: small(owner.0), live: *until > CLOCK, taken_over: taken_over.is_some() }
            }
            State::Consumed { owner, value } => {
                let value = value.as_ref().and_then(|bytes| bytes.first());
                Stage::Consumed { owner: small(owner.0), value: *value.expect("every run has a result") }
            }
            State::Failed { error: _ } => Stage::Failed,
            State::Dead { error: _ } => Stage::Dead,
        };
        Kept {
            number: small(fencing.0.into()),
            attempt: if self.limited { small((*attempt).into()) } else { 1 },
            payload: fingerprint.map_or(0, |print| print.to_bytes()[0]),
            remembered: *expires_at > CLOCK,
            state,
        }
    }
}

impl Kept {
    /// Ends the record's lease, or its retention.
    #[must_use]
    pub fn expired(self, retention: Duration) -> Self {
        match self.state {
            Stage::Consuming { owner, taken_over, .. } => {
                let remembered = self.remembered && !retention.is_zero();
                Self { state: Stage::Consuming { owner, live: false, taken_over }, remembered, ..self }
            }
            _ => self,
        }
    }

    /// Returns whether the state is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self.remembered && matches!(self.state, Stage::Consumed { .. } | Stage::Failed | Stage::Dead)
    }

    /// Returns whether the key is held inside its lease.
    #[must_use]
    pub fn is_live(self) -> bool {
        self.remembered && matches!(self.state, Stage::Consuming { live: true, .. })
    }
}

/// Returns the payload of this number; 0 is none.
#[must_use]
pub fn fingerprint(payload: u8) -> Option<Fingerprint> {
    (payload > 0).then(|| Fingerprint::from_bytes([payload; Fingerprint::LEN]))
}

fn small(number: u128) -> u8 {
    u8::try_from(number).expect("the model's numbers are small")
}
