//! Work for later: the trait that delay queues implement.
use std::fmt;

use async_trait::async_trait;
use idempotent_core::Timestamp;

use crate::error::failure;

/// Keeps work until its time comes, and lets it be called off: an order that is cancelled unless it is paid in time.
///
/// What is due is delivered by the queue's own [`Source`](crate::Source), at least once and never early: an annotated
/// handler makes it take effect once. That handler still checks what it acts on (is the order unpaid?), since a
/// cancellation may come while it is on its way.
///
/// Not every queue can look up work by its key. Where one cannot, as with RabbitMQ, `schedule` says
/// [`Scheduled::Unchecked`] and `cancel` says [`Cancelled::Unsupported`]: the work comes in any case, and only the handler's
/// check calls it off.
#[async_trait]
pub trait Delay: fmt::Debug + Send + Sync + 'static {
    /// Keeps `payload` until `at`, by the clock of whoever keeps it. Idempotent by `key`: the first one stands, until it
    /// was delivered and settled, or called off.
    ///
    /// A queue that cannot look up keys keeps each call's work, and says [`Scheduled::Unchecked`]. The key is then the id of
    /// each delivery: a consumer that deduplicates by it lets the earliest delivery take effect.
    ///
    /// A time that is past is due at once.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Nobody knows whether it is kept. To ask again is safe.
    async fn schedule(&self, key: &str, at: Timestamp, payload: &[u8]) -> Result<Scheduled, DelayError>;

    /// Calls it off, where the queue can do so.
    ///
    /// Whatever this returns, the handler must check whether the work is still wanted.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Nobody knows whether it was called off. To ask again is safe.
    async fn cancel(&self, key: &str) -> Result<Cancelled, DelayError>;
}

/// What [`Delay::schedule`] came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scheduled {
    /// It is kept until then.
    New,
    /// One of this key was kept already, for this time. That one stands.
    Already {
        /// When it is due.
        at: Timestamp,
    },
    /// It is kept until then. The queue cannot look for earlier work of this key: if there is any, both are delivered, under
    /// one id.
    Unchecked,
}

/// What [`Delay::cancel`] came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It will not be delivered.
    Done,
    /// It is with a consumer right now: whether it takes effect is up to the handler. It will not be delivered again.
    Delivering,
    /// Nothing of this key is kept: it was never there, was called off, or was delivered and settled.
    Unknown,
    /// The queue cannot call anything off, and nothing was changed. Work of this key that was scheduled will be delivered at
    /// its time: let the handler read the current state (is the order still unpaid?) in the transaction in which it acts.
    Unsupported,
}

failure! {
    /// Why nothing is known to be kept, or called off.
    DelayError of DelayErrorKind
}

/// What may be concluded from a [`DelayError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DelayErrorKind {
    /// Nothing was changed, and another try may do.
    NotApplied,
    /// Nobody knows. Another try is safe.
    Ambiguous,
    /// Nothing was changed, and nothing will be: the key or the payload cannot be kept, or there is no access.
    Refused,
}

impl DelayErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::NotApplied => "not applied",
            Self::Ambiguous => "nobody knows whether it was applied",
            Self::Refused => "refused",
        }
    }
}
