//! The messages that wait in an outbox, counted in bounded time.
use std::time::Duration;

use super::database::{OutboxDb, SqlValue};
use super::{Outbox, OutboxError};
use crate::capped_count::CappedCount;

/// The messages that wait in an outbox, returned by [`Outbox::backlog`]. Confirmed and void messages do not count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboxBacklog {
    /// Messages that no broker has accepted yet.
    pub unsent: CappedCount,
    /// Messages that the broker has accepted, and that no consumer has confirmed yet.
    pub unconfirmed: CappedCount,
    /// Messages that a relay may send now.
    pub due: CappedCount,
    /// Messages that a relay is sending.
    pub leased: CappedCount,
    /// Messages that wait for an earlier message of their aggregate, which is not sent yet or dead.
    pub held_back: CappedCount,
    /// Messages that were given up.
    pub dead: CappedCount,
    /// The age of the oldest unsent message among those that were counted; `None` if they are all sent.
    pub oldest_unsent: Option<Duration>,
}

impl<Db: OutboxDb> Outbox<Db> {
    /// Counts the waiting messages: at most `cap` of those that are not settled, the longest due first, and at most `cap` dead
    /// ones. Unlike [`counts`](Self::counts), the statement reads a bounded number of rows by index.
    ///
    /// # Errors
    /// The database failed.
    ///
    /// # Cancellation
    /// No change is made.
    pub async fn backlog(&self, cap: u32) -> Result<OutboxBacklog, OutboxError> {
        let most = || SqlValue::from(i64::from(cap) + 1);
        let now = || self.now();
        let args = vec![now(), most(), now(), now(), most()];
        let rows = self.fetch(self.0.statements.backlog(), args, "iiiiiiii").await?;
        let mut row = rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)?;
        let mut count = || row.int().unsigned_abs();
        let (open, unsent, leased, due, held_back) = (count(), count(), count(), count(), count());
        let (first, now, dead) = (row.int_or_null(), row.int(), row.int().unsigned_abs());
        let of = |counted| CappedCount::of(counted, cap, open <= u64::from(cap));
        Ok(OutboxBacklog {
            unsent: of(unsent),
            unconfirmed: of(open - unsent),
            due: of(due),
            leased: of(leased),
            held_back: of(held_back),
            dead: CappedCount::new(dead, cap),
            oldest_unsent: first.map(|first| Duration::from_micros(u64::try_from(now - first).unwrap_or_default())),
        })
    }
}
