//! The trait of delay queues.
use std::fmt;

use async_trait::async_trait;
use idempotent_core::Timestamp;

use crate::error::failure;
use crate::{PublishError, PublishErrorKind};

/// A queue of work that is due at a time and can be cancelled, such as the expiry of an unpaid order.
///
/// The queue's own [`Source`](crate::Source) delivers due work at least once and never early. An annotated handler makes the
/// work take effect once. The handler must still check its precondition (is the order unpaid?), because a cancellation may
/// arrive while the work is being delivered.
///
/// Not every queue can look up work by its key. On such a queue, as on RabbitMQ, `schedule` returns
/// [`Scheduled::Unchecked`] and `cancel` returns [`Cancelled::Unsupported`]. The work is then always delivered, and only the
/// handler's check skips it.
#[async_trait]
pub trait Delay: fmt::Debug + Send + Sync + 'static {
    /// Stores `payload` until `at`, by the clock of the queue. Idempotent by `key`: the first work is kept until it was
    /// delivered and settled, or cancelled. A time in the past is due at once.
    ///
    /// A queue that cannot look up keys stores the work of each call and returns [`Scheduled::Unchecked`]. The key is then the id
    /// of each delivery, so that a consumer that deduplicates by id runs the earliest delivery only.
    ///
    /// # Errors
    /// The [`kind`](DelayError::kind) determines whether a retry may help.
    ///
    /// # Cancellation
    /// The work may or may not be stored. A repeated call is safe.
    async fn schedule(&self, key: &str, at: Timestamp, payload: &[u8]) -> Result<Scheduled, DelayError>;

    /// Cancels the work of this key, if the queue supports that.
    ///
    /// Whatever this method returns, the handler must check whether the work is still needed.
    ///
    /// # Errors
    /// The [`kind`](DelayError::kind) determines whether a retry may help.
    ///
    /// # Cancellation
    /// The work may or may not be cancelled. A repeated call is safe.
    async fn cancel(&self, key: &str) -> Result<Cancelled, DelayError>;
}

/// The result of [`Delay::schedule`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scheduled {
    /// The work is stored until its time.
    New,
    /// Work of this key was already stored, and is kept unchanged.
    Already {
        /// The time of the stored work.
        at: Timestamp,
    },
    /// The work is stored until its time. The queue cannot look up earlier work of this key. If there is any, both are
    /// delivered with the same id.
    Unchecked,
}

/// The result of [`Delay::cancel`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The work will not be delivered.
    Done,
    /// A consumer has the work right now, so the handler decides about its effect. The work will not be delivered again.
    Delivering,
    /// No work of this key is stored: it was never scheduled, was cancelled, or was delivered and settled.
    Unknown,
    /// The queue cannot cancel work, and nothing was changed. Scheduled work of this key will be delivered at its time. The
    /// handler must read the current state (is the order still unpaid?) in the transaction of its effect.
    Unsupported,
}

failure! {
    /// An error of a delay queue: the work may not be stored, or not cancelled.
    DelayError of DelayErrorKind
}

/// The kind of a [`DelayError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DelayErrorKind {
    /// Nothing was changed, and a retry may succeed.
    NotApplied,
    /// The result is unknown. A retry is safe.
    Ambiguous,
    /// Nothing was changed, and a retry is useless: the key or the payload is invalid, or there is no access.
    Refused,
}

/// Converts the error of a publisher that delivers delayed messages.
impl From<PublishError> for DelayError {
    fn from(error: PublishError) -> Self {
        let kind = match error.kind() {
            PublishErrorKind::Unsent => DelayErrorKind::NotApplied,
            PublishErrorKind::Unconfirmed => DelayErrorKind::Ambiguous,
            PublishErrorKind::Refused => DelayErrorKind::Refused,
        };
        Self::new(kind, error.to_string()).with_cause(error)
    }
}

impl DelayErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::NotApplied => "not applied",
            Self::Ambiguous => "the result is unknown",
            Self::Refused => "refused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_the_call_was_applied() {
        let text = |kind| DelayError::new(kind, "no room").to_string();
        let kinds = [DelayErrorKind::NotApplied, DelayErrorKind::Ambiguous, DelayErrorKind::Refused];
        assert_eq!(kinds.map(text), ["not applied: no room", "the result is unknown: no room", "refused: no room"]);
    }
}
