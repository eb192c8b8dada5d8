//! A note of what a consumer has in hand, kept where a sender can read it.
use std::fmt;

use async_trait::async_trait;

use crate::error::failure;
use crate::{Delivery, Position};

/// Where a consumer notes what it received, as its first act, and what became of it, before it tells the broker: an outbox,
/// which sends again what was lost on the way.
///
/// Set by [`ConsumerBuilder::log`](crate::ConsumerBuilder::log). The order is: noted, run, [done](DeliveryResult::Done) noted,
/// acknowledged. Whoever dies in between leaves the delivery with the broker, or the note for the sender to see.
#[async_trait]
pub trait MessageLog: fmt::Debug + Send + Sync + 'static {
    /// Notes deliveries before anything else is done with them, and returns the sender's state of each, in the same order. A
    /// delivery of an id that is noted already leaves that note, and its owner, in place. A [`Foreign`](SenderState::Foreign)
    /// delivery gets no note.
    ///
    /// # Errors
    /// [`LogError`]: the consumer does not run them, and they come again.
    ///
    /// # Cancellation
    /// They may be noted or not.
    async fn received(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, LogError>;

    /// Notes what became of a delivery, before the consumer tells the broker. The consumer calls this for each delivery that
    /// [`received`](Self::received) did not call [`Foreign`](SenderState::Foreign). Calling it twice is safe.
    ///
    /// # Errors
    /// [`LogError`]: one that is done is not acknowledged, and comes again; otherwise the note is left behind, until it is too
    /// old to count.
    ///
    /// # Cancellation
    /// It may be noted or not.
    async fn concluded(&self, receipt: &LoggedDelivery, how: DeliveryResult) -> Result<(), LogError>;
}

/// The name of the header by which an outbox recognizes a message that it has sent. The relay sets the header, in
/// place of one that the message has; whatever carries the message on has to keep the header.
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
    /// A consumer has confirmed the message. The sender does not resend it.
    Confirmed,
    /// An operator has voided the message. The sender does not resend it.
    Void,
    /// The sender has given the message up. The sender does not resend it.
    Dead,
}

/// A delivery in a [`MessageLog`].
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct LoggedDelivery {
    /// The message's id.
    pub id: String,
    /// Where it came from.
    pub position: Position,
    /// Of this delivery alone: no other one has it, in any process.
    pub number: u128,
    /// The value of the header [`OUTBOX_HEADER`], as the message carries it.
    pub nonce: Option<Vec<u8>>,
}

impl LoggedDelivery {
    /// Returns the receipt of this delivery; `None` if the delivery has no id. `number` is random.
    #[must_use]
    pub fn of(delivery: &Delivery, number: u128) -> Option<Self> {
        Some(Self {
            id: delivery.id.clone()?,
            position: delivery.position.clone(),
            number,
            nonce: delivery.headers.first(OUTBOX_HEADER).map(<[u8]>::to_vec),
        })
    }
}

/// Without the id and the nonce, which are not for logs.
impl fmt::Debug for LoggedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedDelivery").field("position", &self.position).finish_non_exhaustive()
    }
}

/// What became of a delivery, as far as its sender is concerned.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DeliveryResult {
    /// What it asks for is done, now or before: it need not be sent again.
    Done,
    /// Its run failed; the broker delivers it again.
    Failed,
    /// It was put aside for good, for a person to look at.
    DeadLettered,
    /// Nothing: it was put off, or a run of the same message goes on elsewhere, also where this delivery is then acknowledged.
    /// The note of that run must stay.
    Deferred,
}

failure! {
    /// Why a note is not known to be there.
    LogError of LogErrorKind
}

/// What may be concluded from a [`LogError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// Worth another try.
    Transient,
}

impl LogErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::Transient => "the message log failed for now",
        }
    }
}
