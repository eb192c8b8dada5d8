//! The record in a form with few values, so that states that differ in nothing that matters are one state.
//!
//! Times become "to come" or "past": the protocol compares them with now and with nothing else, and any lease may end
//! before any other thing happens. Error texts, the time of the first claim and of the last write are dropped:
//! nothing is decided by them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{FencingToken, Fingerprint, OwnerToken, Record, State, Timestamp};

/// The store's clock stands here whenever it is asked; numbers and times are counted from it.
pub const NOW: u8 = 64;
/// As a time.
pub const CLOCK: Timestamp = Timestamp(NOW as u64);
/// Longer than all grants take that the clock cannot tell apart.
pub const LEASE: Duration = Duration::from_micros(1_000);
/// How long any other record is remembered.
pub const RETENTION: Duration = Duration::from_secs(1);

/// What is kept under the one key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Kept {
    /// The last grant's fencing number.
    pub number: u8,
    /// Runs granted; always 1 where there is no limit that would ask for it.
    pub attempt: u8,
    /// Which payload it was claimed with: 0 if nobody compares.
    pub payload: u8,
    /// Whether its time is yet to end; past it the record counts as absent.
    pub remembered: bool,
    /// What the key is in.
    pub state: Stage,
}

/// [`State`], smaller.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stage {
    /// Nobody's.
    Vacant {
        /// See [`State::Vacant`].
        taken_over: bool,
    },
    /// Somebody's.
    Consuming {
        /// Whose.
        owner: u8,
        /// Inside the lease.
        live: bool,
        /// See [`State::Consuming`].
        taken_over: bool,
    },
    /// Done.
    Consumed {
        /// By whom; its result says the same.
        owner: u8,
        /// The result.
        value: u8,
    },
    /// Not worth another run.
    Failed,
    /// Out of attempts.
    Dead,
}

/// How the small form and the protocol's are made of each other.
#[derive(Clone, Debug)]
pub struct Scale {
    /// How long a consuming record is remembered beyond its lease.
    pub memory: Duration,
    /// Whether attempts are counted.
    pub limited: bool,
    /// Results by owner.
    pub values: Vec<Arc<[u8]>>,
    /// The error of whatever has one.
    pub error: Arc<str>,
}

impl Scale {
    fn memory(&self, stage: &Stage) -> Duration {
        if matches!(stage, Stage::Consuming { .. }) { self.memory } else { RETENTION }
    }

    /// As the protocol reads it.
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
            expires_at: if kept.remembered { ends + self.memory(&kept.state) } else { CLOCK },
            first_seen: CLOCK,
            updated_at: CLOCK,
            display: None,
        }
    }

    /// As the states of the model keep it.
    ///
    /// # Panics
    /// If a record holds what the model has no room for: then it is the model that has to grow.
    #[must_use]
    pub fn kept(&self, record: &Record) -> Kept {
        // Taken apart whole: a new field has to be decided on here.
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
    /// The record's lease, or its memory, ends.
    #[must_use]
    pub fn expired(self, memory: Duration) -> Self {
        match self.state {
            Stage::Consuming { owner, taken_over, .. } => {
                let remembered = self.remembered && !memory.is_zero();
                Self { state: Stage::Consuming { owner, live: false, taken_over }, remembered, ..self }
            }
            _ => self,
        }
    }

    /// Nothing else can become of it.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self.remembered && matches!(self.state, Stage::Consumed { .. } | Stage::Failed | Stage::Dead)
    }

    /// Somebody's, and inside the lease.
    #[must_use]
    pub fn is_live(self) -> bool {
        self.remembered && matches!(self.state, Stage::Consuming { live: true, .. })
    }
}

/// The payload of this number; 0 is none.
#[must_use]
pub fn fingerprint(payload: u8) -> Option<Fingerprint> {
    (payload > 0).then(|| Fingerprint::from_bytes([payload; Fingerprint::LEN]))
}

fn small(number: u128) -> u8 {
    u8::try_from(number).expect("the model's numbers are small")
}
