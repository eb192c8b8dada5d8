//! The reasons why a caller does not receive the handler's own answer.
use std::sync::Arc;
use std::time::Duration;

use crate::{
    BrokenOrder, CodecError, DuplicateMessages, EntropyError, FencingToken, KeyError, PolicyError, StepError,
    StoreError, StoreNode,
};

/// The reason why the handler's own answer is not available. A handler's error type converts it by `From`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// Another caller runs the same key. Retry later.
    #[error("{}", message.as_ref().map_or_else(|| format!("an identical call is in flight; retry in {retry_after:?}"), ToString::to_string))]
    InFlight {
        /// The delay before a retry.
        retry_after: Duration,
        /// The text for the caller: the attribute's `message`, or the executor's.
        message: Option<DuplicateMessages>,
    },
    /// An earlier run failed, and the next one is not due yet.
    #[error("the previous attempt failed; retry in {retry_after:?}")]
    Delayed {
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// The call has to wait for an earlier call. Retry later.
    #[error("waiting for an earlier call; retry in {retry_after:?}")]
    Waiting {
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// The call follows a call that will not be consumed without help, and is held until an operator decides.
    #[error("blocked: {why}; fix the earlier call, or set `on_broken_order = skip(…)`; retry in {retry_after:?}")]
    Held {
        /// The delay before a retry.
        retry_after: Duration,
        /// The problem with the earlier call.
        why: BrokenOrder,
    },
    /// This process is shutting down and starts no new runs.
    #[error("the executor is draining; retry in {retry_after:?}")]
    Draining {
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// The key was consumed, but its result was not kept or cannot be read. Not a failure: acknowledge the delivery.
    #[error("already processed, but the recorded result is unavailable{}", cause.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
    ConsumedWithoutResult {
        /// The reason why the result cannot be read, if one was kept.
        cause: Option<CodecError>,
    },
    /// The key was consumed, and its result is returned only once: a used token, or an equal call within the window.
    #[error("{}", message.as_ref().map_or_else(|| "duplicate: already processed".to_owned(), ToString::to_string))]
    Duplicate {
        /// The time after which an equal call is a new one, if a [`window`](crate::Policy::window) ends then.
        retry_after: Option<Duration>,
        /// The text for the caller: the attribute's `message`, or the executor's.
        message: Option<DuplicateMessages>,
    },
    /// The token was not issued to this caller, or has expired.
    #[error("unknown or expired token; request a new one")]
    UnknownToken,
    /// An earlier delivery failed with an error that is not worth a retry.
    #[error("an earlier attempt failed permanently: {error}")]
    Failed {
        /// The error recorded by the earlier delivery.
        error: Arc<str>,
    },
    /// The key is out of attempts, or parked. Or it became dead without a run, because its turn in a sequence cannot
    /// come.
    #[error("{}", crate::ordering::given_up(*attempts, error))]
    Dead {
        /// The number of claims granted in total: the runs of the key, and the claim that made it dead without a run.
        attempts: u32,
        /// The fencing number, which identifies the dead letter together with the key.
        fencing: FencingToken,
        /// The error of the last run, or the reason why there was no run.
        error: Arc<str>,
    },
    /// The key was used with a different payload.
    #[error("the key was used with another payload; use a new key for a new request")]
    Mismatch,
    /// The key or the fingerprint cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The lease was lost while the handler ran, or before it started. Another worker may be running: do nothing more for this delivery.
    #[error("the lease was lost while the handler ran; another worker may have taken over")]
    LeaseLost,
    /// The handler ran, but the store did not record the result in time.
    ///
    /// Either the lease ended first, or [`settle_timeout`](crate::Policy::settle_timeout) passed. In the second case
    /// the executor retries in the background.
    #[error("the handler ran, but the store did not record its result in time")]
    Unrecorded {
        /// The last error of the store, if it returned one.
        cause: Option<StoreError>,
    },
    /// The handler ran in a transaction that was rolled back, so nothing was written. If the kind of the cause is
    /// [`TransactionEnded`](crate::StoreErrorKind::TransactionEnded), the handler itself ended the transaction, and a part may be
    /// written.
    #[error("the handler ran, but its transaction was not committed{}; retry", cause.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
    RolledBack {
        /// The delay before a retry.
        retry_after: Duration,
        /// The reason of the rollback.
        cause: Option<StoreError>,
    },
    /// The handler needs a transaction of a type that the executor's store does not have.
    #[error(
        "the handler needs a `{wanted}`, but this executor's store is {store}; use an executor whose store is in the \
         database of the effects"
    )]
    NoTransaction {
        /// The type of the transaction.
        wanted: &'static str,
        /// The store and the transactions that it has.
        store: Arc<str>,
    },
    /// A run of a key was started inside a run of the same key.
    #[error("`{scope}` already runs with this key in an outer call; a run cannot wait for itself")]
    Nested {
        /// The scope of the outer run.
        scope: Arc<str>,
    },
    /// No executor is in scope or installed.
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
        "no tokio runtime with timers polls this call: call from a tokio task, and call `enable_time` (or \
         `enable_all`) on the runtime's builder"
    )]
    NoRuntime,
    /// The store failed at the claim, and the handler did not run.
    #[error("the handler did not run: {0}")]
    Store(#[from] StoreError),
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The system provided no randomness for an owner token.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A step of the handler could not run, or could not be recorded.
    #[error(transparent)]
    Journal(#[from] StepError),
    /// A batch handler returned a different number of answers than it received items. No item counts as done.
    #[error("the batch handler returned {answered} answers for {given} items; return one answer per item, in order")]
    BatchAnswers {
        /// The number of items passed to the handler.
        given: usize,
        /// The number of answers returned by the handler.
        answered: usize,
    },
}

impl Rejection {
    /// Returns the node of the store that failed, if the store named it.
    pub(crate) fn node(&self) -> Option<&StoreNode> {
        match self {
            Self::Store(error) | Self::Unrecorded { cause: Some(error) } => error.node(),
            _ => None,
        }
    }
}
