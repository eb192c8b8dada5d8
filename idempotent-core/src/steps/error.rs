//! Why a step cannot be.
use crate::{CodecError, StoreError};

/// Why a step was not run, or its result not kept. Reaches a handler as
/// [`Rejection::Journal`](crate::Rejection::Journal).
///
/// Those that say that the run is *parked* end it for good, if the handler fails with them or after them: its key is dead
/// ([`Outcome::Dead`](crate::Outcome::Dead), so a message goes to the dead letters) with this text, and nothing is
/// compensated, since nobody knows what there is to undo. Another run would come to the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no run around the step whose journal it could stand in.
    #[error(
        "step `{step}` stands in no run: call it in a handler, not in a task of its own, a batch or an unprotected run; \
         there, use the `step` of the run's lease"
    )]
    NotInRun {
        /// Which step.
        step: Box<str>,
    },
    /// The store of this executor keeps no steps.
    #[error(
        "step `{step}`: the store keeps no journal; use one that reports the ability `journal`, or no steps in this handler"
    )]
    NoJournal {
        /// Which step.
        step: Box<str>,
    },
    /// The run has a transaction (`transaction = tx`). A step is kept beside it, and would be replayed as done although what it
    /// wrote in the transaction was rolled back.
    #[error(
        "step `{step}` stands in a run that has a transaction: what it wrote there may be rolled back, and would count as \
         done; if that transaction is all it writes in, say `.in_transaction()`, else take the steps in a handler without one"
    )]
    InTransaction {
        /// Which step.
        step: Box<str>,
    },
    /// There is no transaction that the step could be written in: the run of a step
    /// [in its transaction](crate::Step::in_transaction) has none, or the store of a [`step_in`](crate::step_in()) begins none of that type.
    #[error("step `{step}` has no transaction to be written in: {why}")]
    NoTransaction {
        /// Which step.
        step: Box<str>,
        /// What is missing.
        why: Box<str>,
    },
    /// The name is empty or too long.
    #[error("the name of a step has {bytes} bytes, 1 to {max} are taken: put data into its key, not into its name")]
    Name {
        /// Bytes of the name.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Two steps of one run have one name. The run is parked.
    #[error("step `{step}` is called twice in one run: give each a name of its own, in a loop by its number")]
    Repeated {
        /// Which step.
        step: Box<str>,
    },
    /// The handler does not call the steps that it called before, in the order it did. The run is parked.
    #[error(
        "step {place} was `{recorded}` in an earlier run of this key and is `{called}` now: which steps a handler calls, \
         and in which order, may depend on its message and on results of steps only; a changed handler is another scope"
    )]
    NonDeterminism {
        /// Which of the run's steps, from 0.
        place: u32,
        /// What was noted there.
        recorded: Box<str>,
        /// What is called now.
        called: Box<str>,
    },
    /// A step that may be begun only once was begun, and its result is not known. The run is parked.
    #[error(
        "step `{step}` was begun and its result is not known: it may be begun only once, so it is not run again; find \
         out whether it happened, put that right by hand, and forget the key"
    )]
    Uncertain {
        /// Which step.
        step: Box<str>,
    },
    /// The step was compensated by an earlier run that failed for good.
    #[error("step `{step}` was taken back: an earlier run of this key failed for good")]
    TakenBack {
        /// Which step.
        step: Box<str>,
    },
    /// The result is too large to be kept. The run is parked.
    #[error(
        "the result of step `{step}` has {bytes} bytes, {max} are kept for {of}: return less of it, or where it lies"
    )]
    TooLarge {
        /// Which step.
        step: Box<str>,
        /// Bytes of this result, or of all with it.
        bytes: usize,
        /// The limit.
        max: usize,
        /// What the limit is for: one step, or all of a run.
        of: &'static str,
    },
    /// The run has too many steps. The run is parked.
    #[error("step `{step}` is one more than the {max} that a run may have: take several items into one step")]
    TooMany {
        /// Which step.
        step: Box<str>,
        /// The limit.
        max: usize,
    },
    /// The result cannot be kept, or not be restored. The run is parked.
    #[error("step `{step}`: {cause}")]
    Codec {
        /// Which step.
        step: Box<str>,
        /// Why.
        cause: CodecError,
    },
    /// The journal could not be read or written in time. A step that ran before that runs again in the next run, unless
    /// it may be begun only once.
    #[error("step `{step}` is not noted: {cause}")]
    Store {
        /// Which step.
        step: Box<str>,
        /// The store's last word.
        cause: StoreError,
    },
}

impl JournalError {
    /// Whether another run would come to the same, or might do harm.
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
