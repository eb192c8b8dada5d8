//! Steps as stores keep them, and their limits.
use std::fmt;
use std::sync::Arc;

use crate::StateKind;

/// The most steps of a run.
pub const MAX_STEPS: usize = 1_000;
/// The most bytes of one step's result, encoded: 1 MiB.
pub const MAX_STEP_BYTES: usize = 1 << 20;
/// The most bytes of all results of a run, encoded: 8 MiB. A retry reads them all.
pub const MAX_JOURNAL_BYTES: usize = 8 << 20;
/// The most bytes of a step's name.
pub const MAX_STEP_NAME: usize = 200;

/// A step of a run, as a store keeps it under the run's key.
#[derive(Clone, PartialEq)]
pub struct StepRecord {
    /// Its name: names it among the steps of its run.
    pub name: Arc<str>,
    /// Which of the run's steps it is, from 0.
    pub place: u32,
    /// How far it got.
    pub state: StepState,
    /// Its encoded result, if it is done and there is one to keep.
    pub value: Option<Arc<[u8]>>,
}

/// Results are never shown, they may be anything.
impl fmt::Debug for StepRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepRecord")
            .field("name", &self.name)
            .field("place", &self.place)
            .field("state", &self.state)
            .field("value_bytes", &self.value.as_ref().map(|value| value.len()))
            .finish()
    }
}

/// How far a step got. It only goes on: what arrives late takes nothing back.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum StepState {
    /// About to begin, and not to be begun twice: whether its effect happened nobody knows.
    Intended,
    /// Its result is kept.
    Done,
    /// About to be compensated, or compensated.
    Undoing,
}

/// What a store answers to an owner that asks for its steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Journaled {
    /// Those noted under this key since its record began, by whichever owner; in the order of their places.
    Steps(Vec<StepRecord>),
    /// The asker does not hold the key: this attempt is over.
    Lost {
        /// What is there instead.
        now: StateKind,
    },
}
