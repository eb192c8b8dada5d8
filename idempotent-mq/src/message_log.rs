//! The log in which a consumer records received messages and their results, for the sender.
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::failure;
use crate::{Delivery, Position};

/// A log of received messages and their results, such as an outbox, which resends lost messages.
///
/// Set with [`ConsumerBuilder::log`](crate::ConsumerBuilder::log). The consumer records a message first,
/// runs the handler, records the [result](DeliveryResult::Done), and then acknowledges. If a process dies in between, the broker
/// still has the delivery, or the sender sees the record.
///
/// The log also outlives the keys in the store: the consumer acknowledges a message without a run if the log reports that it is
/// [`Consumed`](SenderState::Consumed) or [`Void`](SenderState::Void). See
/// [`ConsumerBuilder::skip_consumed`](crate::ConsumerBuilder::skip_consumed).
#[async_trait]
pub trait MessageLog: fmt::Debug + Send + Sync + 'static {
    /// Records deliveries before any other step, and returns the sender's state of each in the same
    /// order.
    ///
    /// An id that is already recorded keeps its record and owner. A [`Foreign`](SenderState::Foreign) delivery is not recorded.
    /// [`Consumed`](SenderState::Consumed) is a promise, because the consumer acknowledges such a delivery without a run. A log
    /// returns it only for a message that the same [consumer](LoggedDelivery::consumer) has concluded as
    /// [`Done`](DeliveryResult::Done), and [`Confirmed`](SenderState::Confirmed) if it cannot tell.
    ///
    /// # Errors
    /// After a [`LogError`], the consumer does not run the deliveries, and the broker delivers them again.
    ///
    /// # Cancellation
    /// The deliveries may or may not be recorded.
    async fn received(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, LogError>;

    /// Records the result of a delivery, before the consumer settles it. The consumer calls this method for each delivery that
    /// is not [`Foreign`](SenderState::Foreign). A second call has no further effect.
    ///
    /// # Errors
    /// After a [`LogError`], the consumer does not acknowledge a completed delivery, and the broker delivers the message again.
    /// For other results, the record of the delivery stays until it is too old to count.
    ///
    /// # Cancellation
    /// The result may or may not be recorded.
    async fn concluded(&self, receipt: &LoggedDelivery, how: DeliveryResult) -> Result<(), LogError>;
}

/// The name of the header by which an outbox recognizes a message that it has sent. The relay sets the header, and replaces
/// one that the message has. Every component that forwards the message must keep the header.
pub const OUTBOX_HEADER: &str = "idempotent-outbox";

/// The state of a received message at its sender.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SenderState {
    /// This sender has not sent the message: another producer has, or the header [`OUTBOX_HEADER`] is missing or not the
    /// sender's. Also the state of a message without an id.
    #[default]
    Foreign,
    /// No consumer has confirmed the message. The sender resends it until one does, or until it gives the message up.
    Unconfirmed,
    /// A consumer has confirmed the message, perhaps one of another group. The sender does not resend it. The consumer runs the
    /// message, unless its key is consumed.
    Confirmed,
    /// The consumer that received the message has consumed it before. The sender does not resend it. The consumer acknowledges the
    /// message without a run.
    Consumed,
    /// An operator has voided the message. The sender does not resend it. The consumer acknowledges the message without a run.
    Void,
    /// The sender has given the message up, or a consumer has dead-lettered it. The sender does not resend it. The consumer runs
    /// the message, which may be a dead letter that was redriven.
    Dead,
}

/// A delivery in a [`MessageLog`].
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct LoggedDelivery {
    /// The message's id.
    pub id: String,
    /// The position of the delivery.
    pub position: Position,
    /// A number that identifies this delivery among those of all processes.
    pub number: u128,
    /// The value of the header [`OUTBOX_HEADER`], as the message carries it.
    pub nonce: Option<Vec<u8>>,
    /// A name for the consumer, unique for the namespace of its executor and its group. `None` if the consumer runs consumed messages again, and the
    /// log need not remember what it has consumed.
    pub consumer: Option<Arc<str>>,
}

impl LoggedDelivery {
    /// Returns the log data of a delivery, or `None` if the delivery has no id. `number` must be random.
    #[must_use]
    pub fn of(delivery: &Delivery, number: u128) -> Option<Self> {
        Some(Self {
            id: delivery.id.clone()?,
            position: delivery.position.clone(),
            number,
            nonce: delivery.headers.first(OUTBOX_HEADER).map(<[u8]>::to_vec),
            consumer: None,
        })
    }

    /// Sets the consumer that received the delivery.
    #[must_use]
    pub fn consumer(mut self, consumer: impl Into<Arc<str>>) -> Self {
        self.consumer = Some(consumer.into());
        self
    }
}

/// Shows the position only, because id and nonce may be secrets.
impl fmt::Debug for LoggedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedDelivery").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The result of a delivery for its sender.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DeliveryResult {
    /// The message is consumed, by this delivery or an earlier one. The sender need not resend the message.
    Done,
    /// The message expired and was acknowledged without a run. The sender need not resend the message, but another copy that has
    /// not expired must run.
    Expired,
    /// The message was acknowledged without a run because its sender has voided it.
    Void,
    /// The run failed. The broker delivers the message again.
    Failed,
    /// The message was dead-lettered.
    DeadLettered,
    /// The delivery was deferred, or another run of the same message is in progress. The record of that run must stay, even if
    /// this delivery is then acknowledged.
    Deferred,
}

failure! {
    /// An error of a message log: the record may be missing.
    LogError of LogErrorKind
}

/// The kind of a [`LogError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// A retry may succeed.
    Transient,
}

impl LogErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::Transient => "the message log is unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_that_the_log_is_unavailable() {
        let error = LogError::new(LogErrorKind::Transient, "no answer within 5 s");
        assert_eq!(error.to_string(), "the message log is unavailable: no answer within 5 s");
    }
}
