//! The reasons for which a caller does not get the handler's own answer.
use std::sync::Arc;
use std::time::Duration;

use crate::{BrokenOrder, CodecError, EntropyError, Fencing, JournalError, KeyError, PolicyError, StoreError};

/// Why the handler's own answer cannot be given. A handler's error type takes it by `From`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// Somebody is running it: come back later.
    #[error("{}", message.as_deref().map_or_else(|| format!("the same call is in flight; come back in {retry_after:?}"), str::to_owned))]
    InFlight {
        /// When to come back.
        retry_after: Duration,
        /// The attribute's `message`, if it has one.
        message: Option<Arc<str>>,
    },
    /// It failed a moment ago and is not due yet.
    #[error("failed before; not due for {retry_after:?}")]
    Delayed {
        /// When to come back.
        retry_after: Duration,
    },
    /// It comes after a call that is not consumed yet: come back later.
    #[error("it is not its turn; come back in {retry_after:?}")]
    Waiting {
        /// When to come back.
        retry_after: Duration,
    },
    /// It comes after a call that will not be consumed by itself, and is held until somebody has looked.
    #[error("held back: {why}; put that one right, or say `on_broken_order = skip(…)`; comes back in {retry_after:?}")]
    Held {
        /// When to come back.
        retry_after: Duration,
        /// What is wrong.
        why: BrokenOrder,
    },
    /// This process is shutting down and starts nothing new.
    #[error("this executor is draining; another worker may take it in {retry_after:?}")]
    Draining {
        /// When to come back.
        retry_after: Duration,
    },
    /// Done before; its result was not kept or cannot be read. Not a failure: acknowledge it.
    #[error("done before, but its result is not to be had{}", cause.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
    ConsumedWithoutResult {
        /// Why it cannot be read, if one was kept.
        cause: Option<CodecError>,
    },
    /// Done before, and its result is not given twice: a token that was used, or an equal call within the window.
    #[error("{}", message.as_deref().unwrap_or("done before: this is a duplicate"))]
    Duplicate {
        /// When an equal call counts as another one, where that is soon: within a [`window`](crate::Policy::window).
        retry_after: Option<Duration>,
        /// The attribute's `message`, if it has one.
        message: Option<Arc<str>>,
    },
    /// The token is not one of those that were issued to this caller, or its time is over.
    #[error("no such token for this caller: ask for a new one")]
    UnknownToken,
    /// Failed for good in an earlier delivery.
    #[error("failed for good before: {error}")]
    Failed {
        /// The error recorded then.
        error: Arc<str>,
    },
    /// Out of attempts, or parked; or buried without a run, since its turn would not have come.
    #[error("{}", crate::ordering::given_up(*attempts, error))]
    Dead {
        /// Claims granted in all: its runs, and the one that buried it where that was no run.
        attempts: u32,
        /// Names the dead letter together with the key.
        fencing: Fencing,
        /// Why the last run did not succeed, or why there was none.
        error: Arc<str>,
    },
    /// The key was used with another payload.
    #[error("the key was used with another payload: a new request needs a new key")]
    Mismatch,
    /// The key or the fingerprint cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The lease was lost while the handler ran: another worker may be running. Do nothing more for it.
    #[error("the lease was lost while the handler ran; another worker may have taken over")]
    LeaseLost,
    /// The handler ran, but the store did not record the result in time: before the lease ended, or within
    /// [`settle_timeout`](crate::Policy::settle_timeout). In the second case the step goes on in the background.
    #[error("the handler ran, but the store did not record its result in time")]
    Unrecorded {
        /// The store's last word, if it had one.
        cause: Option<StoreError>,
    },
    /// The handler ran in a transaction that could not be committed: nothing of it is there.
    #[error("the handler ran, but its transaction was rolled back{}; try again", cause.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
    RolledBack {
        /// When to come back.
        retry_after: Duration,
        /// Why.
        cause: Option<StoreError>,
    },
    /// The handler is to run in a transaction that the executor's store does not have.
    #[error(
        "the handler wants a `{wanted}`, and this executor's store is {store}: run it by an executor whose store lies in \
         the database of the effects"
    )]
    NoTransaction {
        /// The type of transaction.
        wanted: &'static str,
        /// The store, and what it has.
        store: Arc<str>,
    },
    /// A run of this key inside a run of this key.
    #[error("`{scope}` is running for this very key further up; a run cannot wait for itself")]
    Nested {
        /// The scope of the outer run.
        scope: Arc<str>,
    },
    /// Nothing to run with.
    #[error(
        "no executor for `{scope}`: pass `with = …`, wrap the call in `executor.scope(…)`, or call \
         `executor.install()` once in `main`"
    )]
    NoExecutor {
        /// The scope of the call.
        scope: Arc<str>,
    },
    /// The call is polled outside a tokio runtime, or in one without timers, which leases need.
    #[error(
        "no tokio runtime with timers polls this call: call it from a task of tokio, and call `enable_time` (or \
         `enable_all`) on the builder of the runtime"
    )]
    NoRuntime,
    /// The store failed at the claim; the handler did not run.
    #[error("the handler did not run: {0}")]
    Store(#[from] StoreError),
    /// The policy in force makes no sense.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No randomness for an owner token.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A step of the handler cannot be run, or was not noted.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A batch handler answered for fewer or more items than it was given; none of them counts as done.
    #[error("the batch handler was given {given} items and answered {answered}: one answer for each, in order")]
    BatchAnswers {
        /// Items handed to it.
        given: usize,
        /// Answers it gave.
        answered: usize,
    },
}
