//! [`ServerStore`], the implementation of `MySqlStore` and `PostgresStore`.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, Record, StoreError, Timestamp};

use super::driver::{Driver, Row};
use super::error::Phase;
use super::recent_keys::RecentKeys;
use super::runner::StatementRunner;
use super::statement::BoundStatement;
use super::statements::{OrderStatements, RunTexts, Statements, StepStatements, TransactionStatements};
use crate::lost_result::LostResult;
use crate::row::{self, COLUMNS, Cells, signed};

/// An upper bound of the duration of a statement.
const LONGEST_STATEMENT: Duration = Duration::from_secs(60);

/// A record, the time it was read at, and whether the statement that read it granted it.
#[derive(Debug)]
pub(crate) struct FoundRecord {
    pub(crate) record: Record,
    pub(crate) now: Timestamp,
    pub(crate) granted: bool,
}

/// The store of a database server.
#[derive(Debug)]
pub(crate) struct ServerStore<D: Driver> {
    pub(crate) dialect: D,
    pub(crate) texts: Statements,
    pub(crate) in_transaction: TransactionStatements,
    /// The statements about the transactions of runs.
    pub(crate) run: RunTexts,
    /// The statements for the steps of runs.
    pub(crate) steps: StepStatements,
    /// The statements for the order tables of streams.
    pub(crate) order: OrderStatements,
    pub(crate) runner: StatementRunner<D>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) recent_keys: RecentKeys,
    pub(crate) lost: LostResult,
}

impl<D: Driver> ServerStore<D> {
    /// Returns the time of a custom clock, which is the last parameter of every statement.
    pub(crate) fn time(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| signed(clock.wall()))
    }

    /// Reads a row of a claim or a look: a record, then the time, then whether it was granted.
    pub(crate) fn seen(&self, row: &Row<D>) -> Result<FoundRecord, StoreError> {
        let record = row::record(row)?;
        let now = Timestamp(self.number(row, COLUMNS.len())?.unsigned_abs());
        let granted = self.number(row, COLUMNS.len() + 1)? != 0;
        // A statement reads its clock when it begins, and may see a write that began a moment later.
        let is_a_moment = record.updated_at - now <= LONGEST_STATEMENT;
        Ok(FoundRecord { now: if is_a_moment { now.max(record.updated_at) } else { now }, record, granted })
    }

    /// Reads an integer of a row; null is 0.
    pub(crate) fn number(&self, row: &Row<D>, at: usize) -> Result<i64, StoreError> {
        let told = row.int(at).map_err(|error| self.runner.place.error::<D>(Phase::Executing, error))?;
        Ok(told.unwrap_or_default())
    }

    /// Binds the time of a custom clock as the last parameter.
    pub(crate) fn timed(&self, ask: BoundStatement<D>) -> BoundStatement<D> {
        match self.time() {
            Some(time) => ask.bind(time),
            None => ask,
        }
    }
}
