//! The outcome of a run, reported independently of the handler's return type.
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::{FencingToken, Key, KeyError, Rejection, StoreErrorKind, StoreNode};

/// The end of one delivery.
///
/// The outcome is not derived from the handler's error, because that error may hide a [`Rejection`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler ran, and the store recorded the result.
    Ran,
    /// The handler ran while the store was unavailable, as `on_store_error = run_unprotected` allows.
    Unprotected,
    /// A duplicate of a consumed key received the recorded result.
    Replayed,
    /// A duplicate of a consumed key, whose result was not kept or cannot be read.
    ///
    /// The key is done, so the delivery is acknowledged. Code after such a run in the same handler is not repeated,
    /// like `mail()` in `charge().await?; mail().await?`. If that matters, give the later code a key of its own, or
    /// make sure that results can be kept.
    ConsumedWithoutResult,
    /// A duplicate of a consumed key, rejected as `on_consumed = refuse` demands.
    Duplicate,
    /// The handler failed, and the key is free for the next delivery.
    Released {
        /// The delay before the next delivery.
        retry_after: Duration,
    },
    /// Another caller runs the same key. Not an attempt.
    InFlight {
        /// The delay before the next delivery.
        retry_after: Duration,
    },
    /// An earlier run failed, and the next one is not due yet. Not an attempt.
    Delayed {
        /// The delay before the next delivery.
        retry_after: Duration,
    },
    /// The call has to wait for an earlier call. Not an attempt.
    Waiting {
        /// The delay before the next delivery.
        retry_after: Duration,
    },
    /// The call follows a call that will not be consumed without help, and is held until an operator decides:
    /// [`OnBrokenOrder`](crate::OnBrokenOrder). Not an attempt.
    Held {
        /// The delay before the next delivery.
        retry_after: Duration,
    },
    /// This process is shutting down. Not an attempt.
    Draining {
        /// The delay before the next delivery.
        retry_after: Duration,
    },
    /// The run was dropped before its handler started, and the key is free. Not an attempt.
    Cancelled,
    /// The run was dropped after its handler started, so its effect is unknown. The key stays claimed until the lease
    /// expires, or is free at once if the policy sets `release_on_cancel`.
    Abandoned,
    /// The lease was lost, and another worker may have taken over.
    LeaseLost,
    /// The handler ran, but the store did not record the result.
    Unrecorded,
    /// The store failed at the claim, and the handler did not run.
    StoreDown(StoreErrorKind),
    /// No executor is in scope or installed.
    NoExecutor,
    /// The policy is invalid, or no owner token could be created. The handler did not run.
    Misconfigured,
    /// The handler failed with an error that is not worth a retry.
    Failed,
    /// The key is out of attempts, or parked. Acknowledge the delivery only after the dead letter is confirmed.
    Dead {
        /// The fencing number. Copies of the dead letter can be deduplicated by key and this number.
        fencing: FencingToken,
    },
    /// The key was used with a different payload.
    Mismatch,
    /// The call has no usable key or fingerprint.
    BadKey,
    /// A run of a key was started inside a run of the same key.
    Nested,
}

/// The outcome of a run together with its key and attempt, as returned by [`Outcome::capture_run`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RunSummary {
    /// The outcome of the run.
    pub outcome: Outcome,
    /// The hashed key, or `None` if the call had no usable key.
    pub key: Option<Key>,
    /// The number of the attempt, or `None` if the key was not granted.
    pub attempt: Option<u32>,
    /// True for a duplicate of a run in flight with the policy [`OnInFlight::Ack`](crate::OnInFlight::Ack).
    ///
    /// The consumer may acknowledge the delivery if the sender resends the message in case that the run fails.
    pub acks_in_flight: bool,
    /// The node of the store that failed, if the run ended by such a failure and the store named the node.
    pub node: Option<StoreNode>,
}

impl RunSummary {
    /// Creates a summary, for code that settles the items of a batch by their [`BatchOutput`](crate::BatchOutput)s.
    #[must_use]
    pub fn new(outcome: Outcome, key: Option<Key>, attempt: Option<u32>) -> Self {
        Self { outcome, key, attempt, acks_in_flight: false, node: None }
    }

    pub(crate) fn without_run(outcome: Outcome) -> Self {
        Self::new(outcome, None, None)
    }

    /// Returns the rank of this summary among those of one delivery. The highest rank decides about the delivery.
    fn severity(&self) -> u8 {
        match self.outcome.disposition() {
            Disposition::Ack => 0,
            Disposition::DeadLetter { .. } => 1,
            // A run that failed here must run again here, although another run is in flight.
            Disposition::Retry { .. } if self.acks_in_flight => 2,
            Disposition::Retry { .. } => 3,
        }
    }
}

/// The action that a broker should take for a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Disposition {
    /// Acknowledge the delivery.
    Ack,
    /// Deliver the message again.
    Retry {
        /// The delay before the next delivery.
        after: Duration,
    },
    /// Move the unchanged message to the dead letters, and acknowledge the delivery after that is confirmed.
    DeadLetter {
        /// The reason, for operators.
        reason: Cow<'static, str>,
    },
}

impl Disposition {
    /// Runs the handler of a delivery and returns its output and the disposition of the delivery.
    ///
    /// This combines [`Outcome::capture`] and [`Outcome::settle`].
    ///
    /// ```
    /// use idempotent_core::Disposition;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let handler = async || Err::<(), _>("no stock");
    /// let (answer, disposition) = Disposition::of(handler()).await;
    /// assert!(answer.is_err() && matches!(disposition, Disposition::Retry { .. }));
    /// # });
    /// ```
    ///
    /// # Cancellation
    /// Dropping the returned future drops `future`.
    pub async fn of<F: Future>(future: F) -> (F::Output, Self)
    where
        for<'a> &'a F::Output: Into<Self>,
    {
        let (returned, outcome) = Outcome::capture(future).await;
        let alone: Self = (&returned).into();
        let disposition = match outcome {
            Some(outcome) => outcome.settle(alone),
            None => alone,
        };
        (returned, disposition)
    }
}

/// The disposition of a returned value without a run: an error is worth a retry.
impl<T, E> From<&Result<T, E>> for Disposition {
    fn from(returned: &Result<T, E>) -> Self {
        match returned {
            Ok(_) => Self::Ack,
            Err(_) => Self::Retry { after: DEFAULT_RETRY_DELAY },
        }
    }
}

impl From<&Self> for Disposition {
    fn from(returned: &Self) -> Self {
        returned.clone()
    }
}

/// The delay before the next delivery if nothing better is known.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(1);

impl Outcome {
    /// Returns the disposition of this outcome alone.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        let dead_letter = |reason: &'static str| Disposition::DeadLetter { reason: reason.into() };
        match *self {
            Self::Ran | Self::Unprotected | Self::Replayed | Self::ConsumedWithoutResult | Self::Duplicate => {
                Disposition::Ack
            }
            Self::Released { retry_after }
            | Self::InFlight { retry_after }
            | Self::Delayed { retry_after }
            | Self::Waiting { retry_after }
            | Self::Held { retry_after }
            | Self::Draining { retry_after } => Disposition::Retry { after: retry_after },
            Self::Cancelled
            | Self::Abandoned
            | Self::LeaseLost
            | Self::Unrecorded
            | Self::StoreDown(_)
            | Self::NoExecutor
            | Self::Misconfigured => Disposition::Retry { after: DEFAULT_RETRY_DELAY },
            Self::Failed => dead_letter("failed for good"),
            Self::Mismatch => dead_letter("the key was used with another payload"),
            Self::BadKey => dead_letter("no usable key"),
            Self::Nested => dead_letter("the handler calls itself with its own key"),
            Self::Dead { .. } => dead_letter("out of attempts"),
        }
    }

    /// Returns the disposition of a delivery with this outcome, whose handler returned a value with the disposition
    /// `returned`.
    ///
    /// The returned value can only make the result worse: if a run succeeds but its handler fails afterwards, the
    /// delivery is not done.
    #[must_use]
    pub fn settle(&self, returned: Disposition) -> Disposition {
        match self {
            Self::Ran | Self::Unprotected | Self::Replayed => returned,
            other => other.disposition(),
        }
    }

    /// Returns whether the delivery was only deferred. A deferral must not count as an attempt.
    #[must_use]
    pub fn is_deferral(&self) -> bool {
        matches!(
            self,
            Self::InFlight { .. }
                | Self::Delayed { .. }
                | Self::Waiting { .. }
                | Self::Held { .. }
                | Self::Draining { .. }
                | Self::Cancelled
        )
    }

    pub(crate) fn of(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::ConsumedWithoutResult { .. } => Self::ConsumedWithoutResult,
            Rejection::Duplicate { .. } => Self::Duplicate,
            Rejection::Dead { fencing, .. } => Self::Dead { fencing: *fencing },
            Rejection::Delayed { retry_after } => Self::Delayed { retry_after: *retry_after },
            Rejection::Draining { retry_after } => Self::Draining { retry_after: *retry_after },
            Rejection::Failed { .. } => Self::Failed,
            Rejection::Waiting { retry_after } => Self::Waiting { retry_after: *retry_after },
            Rejection::Held { retry_after, .. } => Self::Held { retry_after: *retry_after },
            Rejection::InFlight { retry_after, .. } => Self::InFlight { retry_after: *retry_after },
            // A handler without a name is a configuration error, not an error of the message.
            Rejection::Key(KeyError::NoName { .. }) => Self::Misconfigured,
            Rejection::Key(_) | Rejection::UnknownToken => Self::BadKey,
            Rejection::LeaseLost => Self::LeaseLost,
            Rejection::Mismatch => Self::Mismatch,
            Rejection::Nested { .. } => Self::Nested,
            Rejection::NoExecutor { .. } => Self::NoExecutor,
            Rejection::Policy(_) | Rejection::Entropy(_) | Rejection::NoRuntime | Rejection::NoTransaction { .. } => {
                Self::Misconfigured
            }
            Rejection::RolledBack { retry_after, .. } => Self::Released { retry_after: *retry_after },
            Rejection::Store(e) => Self::StoreDown(e.kind()),
            Rejection::Unrecorded { .. } => Self::Unrecorded,
            Rejection::BatchAnswers { .. } | Rejection::Journal(_) => {
                Self::Released { retry_after: DEFAULT_RETRY_DELAY }
            }
        }
    }

    /// Returns the delay before the next delivery, if the outcome asks for one.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self.disposition() {
            Disposition::Retry { after } => Some(after),
            Disposition::Ack | Disposition::DeadLetter { .. } => None,
        }
    }
}

/// The shared slot for the outcome of the runs directly inside a capture, or inside another run.
#[derive(Clone)]
pub(crate) enum OutcomeSlot {
    Shared(Arc<dyn SummarySlot>),
    /// The slot of a delivery. A detached run may outlive the delivery, and must not keep its message and its place.
    OfDelivery(Weak<dyn SummarySlot>),
}

/// The summary of the runs directly inside a run, a capture or a delivery.
pub type Summary = Mutex<Option<RunSummary>>;

/// An owner of a [`Summary`], such as a consumer's delivery.
#[doc(hidden)]
pub trait SummarySlot: Send + Sync {
    fn summary(&self) -> &Summary;
}

impl SummarySlot for Summary {
    fn summary(&self) -> &Summary {
        self
    }
}

impl Default for OutcomeSlot {
    fn default() -> Self {
        Self::Shared(Arc::new(Summary::default()))
    }
}

impl fmt::Debug for OutcomeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutcomeSlot")
    }
}

impl OutcomeSlot {
    /// Changes the summary. Does nothing if its delivery is gone.
    fn change<T>(&self, change: impl FnOnce(&mut Option<RunSummary>) -> Option<T>) -> Option<T> {
        let change =
            |slot: &dyn SummarySlot| change(&mut slot.summary().lock().unwrap_or_else(PoisonError::into_inner));
        match self {
            Self::Shared(slot) => change(&**slot),
            Self::OfDelivery(slot) => change(&*slot.upgrade()?),
        }
    }

    pub(crate) fn tell(&self, captured: RunSummary) {
        self.change(|slot| {
            if slot.as_ref().is_none_or(|recorded| recorded.severity() <= captured.severity()) {
                *slot = Some(captured);
            }
            Some(())
        });
    }

    pub(crate) fn take(&self) -> Option<RunSummary> {
        self.change(Option::take)
    }

    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        self.take().map(|captured| captured.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_is_retried_has_a_delay() {
        let retry_after = Duration::from_secs(5);
        assert_eq!(Outcome::Released { retry_after }.retry_after(), Some(retry_after));
        assert_eq!((Outcome::Ran.retry_after(), Outcome::Failed.retry_after()), (None, None));
    }
}
