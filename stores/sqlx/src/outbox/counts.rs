//! The numbers of messages in an outbox.
use std::time::Duration;

use super::database::OutboxDb;
use super::{Outbox, OutboxError};

/// The numbers of messages in an outbox, returned by [`Outbox::counts`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboxCounts {
    /// Messages that no broker has accepted yet.
    pub unsent: u64,
    /// Messages that the broker has accepted, and that no consumer has confirmed yet.
    pub unconfirmed: u64,
    /// Messages that were given up.
    pub dead: u64,
    /// The age of the oldest unsent message; `None` if all messages are sent. More than a moment means that no relay runs,
    /// or that the broker does not accept the message.
    pub oldest_unsent: Option<Duration>,
}

impl<Db: OutboxDb> Outbox<Db> {
    /// Counts the messages that are not settled, and the dead ones. The statement reads all of their rows.
    ///
    /// # Errors
    /// The database failed.
    ///
    /// # Cancellation
    /// No change is made.
    pub async fn counts(&self) -> Result<OutboxCounts, OutboxError> {
        let rows = self.fetch(self.0.statements.counts(), vec![self.now()], "iiiii").await?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(OutboxCounts::default()) };
        let mut count = || row.int().unsigned_abs();
        let (unsent, unconfirmed, dead) = (count(), count(), count());
        let (first, now) = (row.int_or_null(), row.int());
        let oldest_unsent = first.map(|first| Duration::from_micros(u64::try_from(now - first).unwrap_or_default()));
        Ok(OutboxCounts { unsent, unconfirmed, dead, oldest_unsent })
    }
}
