//! The stored form of steps, and their limits.
use std::fmt;
use std::sync::Arc;

use crate::StateKind;

/// The maximum number of steps per run.
pub const MAX_STEPS: usize = 1_000;
/// The maximum size of one step's encoded result: 1 MiB.
pub const MAX_STEP_BYTES: usize = 1 << 20;
/// The maximum size of all encoded results of a run: 8 MiB. A retry reads all of them.
pub const MAX_STEPS_BYTES: usize = 8 << 20;
/// The maximum length of a step's name in bytes.
pub const MAX_STEP_NAME: usize = 200;

/// A step of a run, as a store keeps it under the run's key.
#[derive(Clone, PartialEq)]
pub struct StepRecord {
    /// The name, unique among the steps of the run.
    pub name: Arc<str>,
    /// The position among the run's steps, from 0.
    pub place: u32,
    /// The progress of the step.
    pub state: StepState,
    /// The encoded result, if the step is done and has a result to keep.
    pub value: Option<Arc<[u8]>>,
}

/// Formats the step without its result, which may contain anything.
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

/// The progress of a step. States only advance, so a late write does not reset a state. Complete by definition: a new state
/// would change the protocol.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum StepState {
    /// About to run, and not to be run twice. Whether the effect has happened is unknown.
    Intended,
    /// Completed, with its result recorded.
    Done,
    /// About to be compensated, or compensated.
    Undoing,
}

/// A store's answer to an owner that reads the steps of its key. Complete by definition: the key has this owner, or not.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredSteps {
    /// All steps recorded since the key's record began, by any owner, ordered by their positions.
    Steps(Vec<StepRecord>),
    /// The caller does not hold the key, so its attempt is over.
    Lost {
        /// The current state of the key.
        now: StateKind,
    },
}
