//! How much work there is.
use std::time::Duration;

use idempotent_mq::DelayError;

use super::DelayTable;
use super::database::DelayDb;
use super::error::delay_error;

/// How much work a table has, as of [`DelayTable::counts`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DelayTableCounts {
    /// Would be delivered now.
    pub ready: u64,
    /// Its time has not come.
    pub waiting: u64,
    /// With a consumer, whose time to settle it is not over.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// For how long the one has been ready that has been so for longest; `None` if none is. More than a moment means that
    /// consumers do not keep up.
    pub oldest: Option<Duration>,
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Counts the table: it is read as a whole.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Nothing has happened.
    pub async fn counts(&self) -> Result<DelayTableCounts, DelayError> {
        let args = vec![self.now(); 5];
        let rows = self.fetch(self.0.statements.counts(), args, "iiiiii").await;
        let rows = rows.map_err(|error| delay_error("counting", error))?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(DelayTableCounts::default()) };
        let mut count = || row.int().unsigned_abs();
        let (ready, waiting, in_flight, dead) = (count(), count(), count(), count());
        let (first, now) = (row.int_or_null(), row.int());
        let oldest = first.map(|first| Duration::from_micros(now.saturating_sub(first).unsigned_abs()));
        Ok(DelayTableCounts { ready, waiting, in_flight, dead, oldest })
    }
}
