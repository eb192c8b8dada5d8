//! The steps of a run, recorded with its key: a retry replays completed steps and runs only the rest.
mod error;
mod in_transaction;
mod journal;
mod record;
mod step;

pub use self::error::StepError;
pub use self::in_transaction::{InTransaction, step_in};
pub(crate) use self::journal::StepJournal;
pub use self::record::{MAX_STEP_BYTES, MAX_STEP_NAME, MAX_STEPS, MAX_STEPS_BYTES, StepRecord, StepState, StoredSteps};
pub use self::step::{OutsideTransaction, Step, step, step_key};
