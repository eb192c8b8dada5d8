//! The numbers of tasks in a table.
use std::time::Duration;

use idempotent_mq::DelayError;

use super::DelayTable;
use super::database::DelayDb;
use super::error::delay_error;
use crate::capped_count::CappedCount;
use crate::sql_database::SqlValue;

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

/// The numbers of tasks in a table, counted up to a limit, returned by [`DelayTable::backlog`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DelayTableBacklog {
    /// Tasks that are due.
    pub ready: CappedCount,
    /// Tasks that are not due yet.
    pub waiting: CappedCount,
    /// Tasks that a consumer holds, within their visibility timeout.
    pub in_flight: CappedCount,
    /// Dead letters.
    pub dead: CappedCount,
    /// The age of the oldest due task; `None` if no task is due.
    pub oldest: Option<Duration>,
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Counts the tasks up to `cap`: those that are due, those that are due later, and the dead ones. Unlike
    /// [`counts`](Self::counts), the statement reads a bounded number of rows by index.
    ///
    /// # Errors
    /// The database failed; see [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// No change is made.
    pub async fn backlog(&self, cap: u32) -> Result<DelayTableBacklog, DelayError> {
        let most = || SqlValue::from(i64::from(cap) + 1);
        let now = || self.now();
        let args = vec![now(), most(), most(), now(), now(), now(), most()];
        let rows = self.fetch(self.0.statements.backlog(), args, "iiiiii").await;
        let rows = rows.map_err(|error| delay_error("counting", error))?;
        let mut row = rows.into_iter().next().ok_or_else(|| {
            delay_error("counting", idempotent_core::StoreError::new(idempotent_core::StoreErrorKind::Ambiguous))
        })?;
        let mut count = || row.int().unsigned_abs();
        let (ready, waiting, in_flight, dead) = (count(), count(), count(), count());
        let (first, now) = (row.int_or_null(), row.int());
        let later = |counted| CappedCount::of(counted, cap, waiting + in_flight <= u64::from(cap));
        Ok(DelayTableBacklog {
            ready: CappedCount::new(ready, cap),
            waiting: later(waiting),
            in_flight: later(in_flight),
            dead: CappedCount::new(dead, cap),
            oldest: first.map(|first| Duration::from_micros(now.saturating_sub(first).unsigned_abs())),
        })
    }

    /// Counts the tasks. The statement reads the whole table; see [`backlog`](Self::backlog) for a large one.
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
