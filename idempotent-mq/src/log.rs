//! A note of what a consumer has in hand, kept where a sender can read it.
use std::fmt;

use async_trait::async_trait;

use crate::error::failure;
use crate::{Delivery, Position};

/// Where a consumer notes what it received, as its first act, and what became of it, before it tells the broker: an outbox,
/// which sends again what was lost on the way.
///
/// Set by [`ConsumerBuilder::log`](crate::ConsumerBuilder::log). The order is: noted, run, [done](Concluded::Done) noted,
/// acknowledged. Whoever dies in between leaves the delivery with the broker, or the note for the sender to see.
#[async_trait]
pub trait MessageLog: fmt::Debug + Send + Sync + 'static {
    /// Notes these, before anything else is done with them; those that nobody sent through it, too. A delivery of an id that is
    /// noted already leaves that note, and its owner, in place.
    ///
    /// # Errors
    /// [`LogError`]: they are not run, and come again.
    ///
    /// # Cancellation
    /// They may be noted or not.
    async fn received(&self, receipts: &[Receipt]) -> Result<(), LogError>;

    /// What became of one, before the broker is told. To say it twice is safe.
    ///
    /// # Errors
    /// [`LogError`]: one that is done is not acknowledged, and comes again; otherwise the note is left behind, until it is too
    /// old to count.
    ///
    /// # Cancellation
    /// It may be noted or not.
    async fn concluded(&self, receipt: &Receipt, how: Concluded) -> Result<(), LogError>;
}

/// A delivery in a [`MessageLog`].
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct Receipt {
    /// The message's id.
    pub id: String,
    /// Where it came from.
    pub position: Position,
    /// Of this delivery alone: no other one has it, in any process.
    pub number: u128,
}

impl Receipt {
    /// Of this delivery; `None` if it has no id. `number` is random.
    #[must_use]
    pub fn of(delivery: &Delivery, number: u128) -> Option<Self> {
        Some(Self { id: delivery.id.clone()?, position: delivery.position.clone(), number })
    }
}

/// Without the id, which may be anything.
impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("position", &self.position).finish_non_exhaustive()
    }
}

/// What became of a delivery, as far as its sender is concerned.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Concluded {
    /// What it asks for is done, now or before: it need not be sent again.
    Done,
    /// Its run failed; the broker delivers it again.
    Failed,
    /// It was put aside for good, for a person to look at.
    PutAside,
    /// Nothing: it was put off, or a run of the same message goes on elsewhere, also where this delivery is then acknowledged.
    /// The note of that run must stay.
    PutOff,
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
