//! The errors of steps.
use crate::{CodecError, StoreError};

/// The error of a step that was not run, or whose result could not be recorded. A handler receives it as
/// [`Rejection::Journal`](crate::Rejection::Journal).
///
/// An error that *parks* the run ends it permanently, if the handler fails with the error or after it. The key is then
/// dead ([`Outcome::Dead`](crate::Outcome::Dead)) with the error as its text, and a message is dead-lettered. Another
/// run would fail in the same way. No step is compensated, since the completed steps are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The step was called outside of a run, so there is no journal to record it in.
    #[error(
        "step `{step}`: no run in scope; call it in the task of a handler. In a separate task or a batch use `Lease::step`; an \
         unprotected run has no steps"
    )]
    NotInRun {
        /// The name of the step.
        step: Box<str>,
    },
    /// The executor's store does not keep steps.
    #[error(
        "step `{step}`: the store keeps no journal; use a store with the `journal` capability, or no steps in this handler"
    )]
    NoJournal {
        /// The name of the step.
        step: Box<str>,
    },
    /// The run has a transaction (`transaction = tx`). The step would be recorded outside of that transaction, and
    /// replayed as completed even if its writes in the transaction were rolled back.
    #[error(
        "step `{step}`: its run has a transaction, whose rollback would not undo the step's record; use `.in_transaction()` if \
         the step writes only in that transaction, or a handler without a transaction"
    )]
    InTransaction {
        /// The name of the step.
        step: Box<str>,
    },
    /// The step has no transaction. Either the run of a step [in its transaction](crate::Step::in_transaction) has
    /// none, or the store of a [`step_in`](crate::step_in()) does not begin transactions of that type.
    #[error("step `{step}`: no transaction for the step: {why}")]
    NoTransaction {
        /// The name of the step.
        step: Box<str>,
        /// The missing condition.
        why: Box<str>,
    },
    /// The name is empty or too long.
    #[error("the name of a step has {bytes} bytes, 1 to {max} are taken: put data into its key, not into its name")]
    Name {
        /// The length of the name in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// Two steps of the run have the same name. The run is parked.
    #[error("step `{step}` is called twice in one run: give each a name of its own, in a loop by its number")]
    Repeated {
        /// The name of the step.
        step: Box<str>,
    },
    /// The handler calls other steps than an earlier run, or in another order. The run is parked.
    #[error(
        "step {place} was `{recorded}` in an earlier run of this key and is `{called}` now: which steps a handler calls, \
         and in which order, may depend on its message and on results of steps only; a changed handler is another scope"
    )]
    NonDeterminism {
        /// The position of the step in the run, from 0.
        place: u32,
        /// The step recorded at this position.
        recorded: Box<str>,
        /// The step called now.
        called: Box<str>,
    },
    /// An at-most-once step was started, and its result is not known. The run is parked.
    #[error(
        "step `{step}` was started and its result is not known: the step may start only once; find out whether it took \
         effect, repair its effect, and forget the key"
    )]
    Uncertain {
        /// The name of the step.
        step: Box<str>,
    },
    /// The step was compensated by an earlier run that failed permanently.
    #[error("step `{step}` was compensated: an earlier run of this key failed permanently")]
    TakenBack {
        /// The name of the step.
        step: Box<str>,
    },
    /// The result is too large to record. The run is parked.
    #[error(
        "the result of step `{step}` has {bytes} bytes, {max} are kept for {of}: return less of it, or where it lies"
    )]
    TooLarge {
        /// The name of the step.
        step: Box<str>,
        /// The size of this result in bytes, or the total with it.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
        /// The scope of the limit: one step, or all steps of a run.
        of: &'static str,
    },
    /// The run has too many steps. The run is parked.
    #[error("step `{step}` is one more than the {max} that a run may have: take several items into one step")]
    TooMany {
        /// The name of the step.
        step: Box<str>,
        /// The limit.
        max: usize,
    },
    /// The result could not be encoded or decoded. The run is parked.
    #[error("step `{step}`: {cause}")]
    Codec {
        /// The name of the step.
        step: Box<str>,
        /// The codec's error.
        cause: CodecError,
    },
    /// The journal could not be read or written in time. A step that has already run will run again in the next run,
    /// unless it is an at-most-once step.
    #[error("step `{step}` was not recorded: {cause}")]
    Store {
        /// The name of the step.
        step: Box<str>,
        /// The store's last error.
        cause: StoreError,
    },
}

impl StepError {
    /// Returns true if another run would fail in the same way or might do harm.
    pub(crate) fn parks(&self) -> bool {
        match self {
            Self::NonDeterminism { .. }
            | Self::Repeated { .. }
            | Self::Uncertain { .. }
            | Self::TooLarge { .. }
            | Self::TooMany { .. }
            | Self::Name { .. }
            | Self::Codec { .. } => true,
            Self::NotInRun { .. }
            | Self::NoJournal { .. }
            | Self::InTransaction { .. }
            | Self::NoTransaction { .. }
            | Self::TakenBack { .. }
            | Self::Store { .. } => false,
        }
    }
}
