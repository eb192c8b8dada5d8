//! The store of a database server, without its name.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, Record, StoreError, Timestamp};

use super::driver::{Driver, Row};
use super::error::When;
use super::link::Link;
use super::recent_keys::Lately;
use super::statement::Ask;
use super::statements::{Inside, OrderStatements, StepStatements, Texts};
use crate::row::{self, COLUMNS, Cells, signed};

/// Longer than any statement of ours runs.
const LONGEST_STATEMENT: Duration = Duration::from_secs(60);

/// A record, the time it was read at, and whether the statement that read it granted it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) record: Record,
    pub(crate) now: Timestamp,
    pub(crate) granted: bool,
}

/// A store, but for its name.
#[derive(Debug)]
pub(crate) struct Plan<D: Driver> {
    pub(crate) dialect: D,
    pub(crate) texts: Texts,
    pub(crate) inside: Inside,
    /// Where it keeps the steps of runs.
    pub(crate) steps: StepStatements,
    /// And the order tables of streams.
    pub(crate) order: OrderStatements,
    pub(crate) link: Link<D>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) lately: Lately,
}

impl<D: Driver> Plan<D> {
    /// The time, where a clock was handed in; every statement's last parameter then.
    pub(crate) fn time(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| signed(clock.wall()))
    }

    /// Reads a row of a claim or a look: a record, then the time, then whether it was granted.
    pub(crate) fn seen(&self, row: &Row<D>) -> Result<Seen, StoreError> {
        let record = row::record(row)?;
        let now = Timestamp(self.number(row, COLUMNS.len())?.unsigned_abs());
        let granted = self.number(row, COLUMNS.len() + 1)? != 0;
        // A statement reads its clock when it begins, and may see a write that began a moment later.
        let is_a_moment = record.updated_at - now <= LONGEST_STATEMENT;
        Ok(Seen { now: if is_a_moment { now.max(record.updated_at) } else { now }, record, granted })
    }

    /// A whole number that a statement of ours tells.
    pub(crate) fn number(&self, row: &Row<D>, at: usize) -> Result<i64, StoreError> {
        let told = row.int(at).map_err(|error| self.link.place.error::<D>(When::Asking, error))?;
        Ok(told.unwrap_or_default())
    }

    /// With the time as the last one.
    pub(crate) fn timed(&self, ask: Ask<D>) -> Ask<D> {
        match self.time() {
            Some(time) => ask.bind(time),
            None => ask,
        }
    }
}
