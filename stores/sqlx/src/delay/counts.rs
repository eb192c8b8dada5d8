//! The numbers of tasks in a table.
use std::time::Duration;

use idempotent_mq::DelayError;

use super::DelayTable;
use super::database::DelayDb;
use super::error::delay_error;

/// The numbers of tasks in a table, returned by [`DelayTable::counts`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DelayTableCounts {
    /// Tasks that are due.
    pub ready: u64,
    /// Tasks that are not due yet.
    pub waiting: u64,
    /// Tasks that a consumer holds, within their visibility timeout.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// The age of the oldest due task; `None` if no task is due. More than a moment means that the consumers do not
    /// keep up.
    pub oldest: Option<Duration>,
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Counts the tasks. The statement reads the whole table.
    ///
    /// # Errors
    /// The database failed; see [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// No change is made.
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
