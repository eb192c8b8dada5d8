//! What a run came to, told past the handler's return type.
use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Fencing, Key, KeyError, Rejection, StoreErrorKind};

/// The end of one delivery. A user's error may hide a [`Rejection`], so nothing is read out of it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler ran and that is recorded.
    Ran,
    /// The handler ran while the store was down: `on_store_error = run_unprotected`.
    Unprotected,
    /// A duplicate of a consumed key got the recorded result.
    Replayed,
    /// A duplicate of a consumed key whose result was not kept or cannot be read. The key is done, so the delivery is:
    /// whatever a handler does behind such a run (`charge().await?; mail().await?`) is not done again. Where that
    /// matters give it a key of its own, or see to it that results can be kept.
    ConsumedWithoutResult,
    /// A duplicate of a consumed key, refused as one: `on_consumed = refuse`.
    Duplicate,
    /// The handler failed and the marker is gone: the next delivery may run.
    Released {
        /// When to deliver again.
        retry_after: Duration,
    },
    /// Somebody is running it. Not an attempt.
    InFlight {
        /// When to deliver again.
        retry_after: Duration,
    },
    /// Failed a moment ago and not due yet. Not an attempt.
    Delayed {
        /// When to deliver again.
        retry_after: Duration,
    },
    /// It comes after a call that is not consumed yet. Not an attempt.
    Waiting {
        /// When to deliver again.
        retry_after: Duration,
    },
    /// It comes after a call that will not be consumed by itself, and is held until somebody has looked:
    /// [`OnBrokenOrder`](crate::OnBrokenOrder). Not an attempt.
    Held {
        /// When to deliver again.
        retry_after: Duration,
    },
    /// This process is shutting down. Not an attempt.
    Draining {
        /// When to deliver again.
        retry_after: Duration,
    },
    /// The run was dropped before its handler started; the key is free. Not an attempt.
    Cancelled,
    /// The run was dropped after its handler started: its effect is unknown. Its lease runs out, or the key is free
    /// if the policy says `release_on_cancel`.
    Abandoned,
    /// Another worker may have taken over.
    LeaseLost,
    /// The handler ran, but that could not be recorded.
    Unrecorded,
    /// The store failed at the claim; the handler did not run.
    StoreDown(StoreErrorKind),
    /// Nothing to run with.
    NoExecutor,
    /// The policy in force makes no sense, or no owner token could be made; the handler did not run.
    Misconfigured,
    /// Failed for good.
    Failed,
    /// Out of attempts, or parked. Acknowledge only once the dead letter is confirmed.
    Dead {
        /// Copies of a dead letter collapse by key and this number.
        fencing: Fencing,
    },
    /// The key was used with another payload.
    Mismatch,
    /// No usable key or fingerprint.
    BadKey,
    /// A run of a key inside a run of that key.
    Nested,
}

/// What a run came to, and which run it was, as [`Outcome::capture_run`] tells it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Captured {
    /// What it came to.
    pub outcome: Outcome,
    /// Its key, hashed; `None` if there was no usable one.
    pub key: Option<Key>,
    /// Which run of the key it was; `None` if the key was not granted.
    pub attempt: Option<u32>,
}

impl Captured {
    /// Put together by hand, for what settles the items of a batch by their [`Answer`](crate::Answer)s.
    #[must_use]
    pub fn new(outcome: Outcome, key: Option<Key>, attempt: Option<u32>) -> Self {
        Self { outcome, key, attempt }
    }

    pub(crate) fn without_run(outcome: Outcome) -> Self {
        Self { outcome, key: None, attempt: None }
    }
}

/// What a broker should do with a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Disposition {
    /// Done: acknowledge it.
    Ack,
    /// Deliver it again.
    Retry {
        /// Not before.
        after: Duration,
    },
    /// Put it aside, unchanged, for a person to look at; acknowledge it once that is confirmed.
    DeadLetter {
        /// Why.
        reason: Cow<'static, str>,
    },
}

impl Disposition {
    /// Runs a delivery's handler and says how to settle the delivery: [`Outcome::capture`], then
    /// [`Outcome::settle`] with what was returned.
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
    /// Dropping it drops `future`.
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

/// What a value returned asks for where no run says otherwise: an error is worth a retry.
impl<T, E> From<&Result<T, E>> for Disposition {
    fn from(returned: &Result<T, E>) -> Self {
        match returned {
            Ok(_) => Self::Ack,
            Err(_) => Self::Retry { after: SOON },
        }
    }
}

impl From<&Self> for Disposition {
    fn from(returned: &Self) -> Self {
        returned.clone()
    }
}

/// When to deliver again what nothing better is known about.
const SOON: Duration = Duration::from_secs(1);

impl Outcome {
    /// What this outcome alone asks for.
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
            | Self::Misconfigured => Disposition::Retry { after: SOON },
            Self::Failed => dead_letter("failed for good"),
            Self::Mismatch => dead_letter("the key was used with another payload"),
            Self::BadKey => dead_letter("no usable key"),
            Self::Nested => dead_letter("the handler calls itself with its own key"),
            Self::Dead { .. } => dead_letter("out of attempts"),
        }
    }

    /// What a delivery asks for whose run came to this and whose handler returned something that alone asks for
    /// `returned`. The returned value can only make an outcome worse: a run that went well inside a handler that
    /// failed afterwards is not done.
    #[must_use]
    pub fn settle(&self, returned: Disposition) -> Disposition {
        match self {
            Self::Ran | Self::Unprotected | Self::Replayed => returned,
            other => other.disposition(),
        }
    }

    /// Whether a delivery that ends so was only put off: it must not count as an attempt.
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
            // A handler without a name is set up wrong; the message is not at fault.
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
            Rejection::BatchAnswers { .. } | Rejection::Journal(_) => Self::Released { retry_after: SOON },
        }
    }

    /// When to come back, if a moment is told.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self.disposition() {
            Disposition::Retry { after } => Some(after),
            Disposition::Ack | Disposition::DeadLetter { .. } => None,
        }
    }

    fn unsettled(&self) -> u8 {
        match self.disposition() {
            Disposition::Ack => 0,
            Disposition::DeadLetter { .. } => 1,
            Disposition::Retry { .. } => 2,
        }
    }
}

/// Where the runs directly inside a capture, or inside another run, leave their outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutcomeSlot(Arc<Mutex<Option<Captured>>>);

impl OutcomeSlot {
    pub(crate) fn tell(&self, captured: Captured) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.as_ref().is_none_or(|told| told.outcome.unsettled() <= captured.outcome.unsettled()) {
            *slot = Some(captured);
        }
    }

    pub(crate) fn take(&self) -> Option<Captured> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        self.take().map(|captured| captured.outcome)
    }
}
