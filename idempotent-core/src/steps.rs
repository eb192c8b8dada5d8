//! The steps of a run, recorded with its key: a retry replays completed steps and runs only the rest.
mod error;
mod in_transaction;
mod journal;
mod record;
mod step;

pub use self::error::JournalError;
pub use self::in_transaction::{Within, step_in};
pub(crate) use self::journal::StepJournal;
pub use self::record::{Journaled, MAX_JOURNAL_BYTES, MAX_STEP_BYTES, MAX_STEP_NAME, MAX_STEPS, StepRecord, StepState};
pub use self::step::{Beside, Step, step, step_key};
