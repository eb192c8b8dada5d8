//! Taking due tasks: the holder is stored in the row, so it outlives the statement that took the task.
use idempotent_core::{Entropy, OsEntropy, StoreError, StoreErrorKind, Timestamp};
use idempotent_mq::Headers;
use sqlx::Connection as _;
use tracing::warn;

use super::DelayTable;
use super::database::DelayDb;
use super::statements::TAKEN_SHAPE;
use crate::packed::unpack;
use crate::sql_database::{RowValues, SqlValue, micros};

/// The id of one take.
pub(super) type HolderToken = [u8; 16];

/// The maximum number of rows in one take.
const MOST: usize = 256;

/// A task that a holder has for the visibility timeout.
#[derive(Debug)]
pub(super) struct TakenTask {
    pub(super) seq: i64,
    scheduled_at: i64,
    pub(super) id: String,
    /// The headers; `None` if another version wrote the row.
    pub(super) headers: Option<Headers>,
    pub(super) body: Vec<u8>,
    pub(super) taken: u32,
    pub(super) attempt: u32,
    pub(super) first_at: Option<Timestamp>,
    pub(super) deaths: u32,
    /// The holder; `None` if the task is dead.
    pub(super) holder: Option<HolderToken>,
}

impl TakenTask {
    pub(super) fn read(row: &mut RowValues) -> Self {
        let small = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            seq: row.int(),
            scheduled_at: row.int(),
            id: row.text(),
            headers: unpack(&row.bytes()),
            body: row.bytes(),
            taken: small(row.int()),
            attempt: small(row.int()),
            first_at: row.int_or_null().map(|time| Timestamp(time.unsigned_abs())),
            deaths: small(row.int()),
            holder: row.bytes_or_null().and_then(|bytes| bytes.try_into().ok()),
        }
    }
}

/// The next due times, by the database's clock.
pub(super) struct UpcomingTimes {
    pub(super) now: i64,
    /// The due times, in order.
    pub(super) dues: Vec<i64>,
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Returns the next due times within `window`, at most `most`.
    pub(super) async fn ahead(&self, window: std::time::Duration, most: usize) -> Result<UpcomingTimes, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let args = vec![self.now(), self.now(), SqlValue::from(micros(window)), SqlValue::from(most)];
        let rows = self.fetch(self.0.statements.ahead(), args, "ii").await?;
        let mut ahead = UpcomingTimes { now: 0, dues: Vec::with_capacity(rows.len()) };
        for mut row in rows {
            ahead.now = row.int();
            ahead.dues.extend(row.int_or_null());
        }
        ahead.dues.sort_unstable();
        Ok(ahead)
    }

    /// Takes at most `room` due tasks, the longest due first, and returns the number of rows as well, some of which
    /// may have become dead letters. Two holders never have the same task.
    pub(super) async fn take(&self, room: usize) -> Result<(Vec<TakenTask>, usize), StoreError> {
        let bits = OsEntropy.bits().map_err(|error| {
            StoreError::new(StoreErrorKind::NotApplied).because("no randomness available").with_source(error)
        })?;
        let (holder, room) = (bits.to_be_bytes(), room.clamp(1, MOST));
        let rows = if self.0.statements.takes_at_once() {
            let mut args = self.taking(&holder);
            args.extend([self.now(), limit(room)]);
            self.fetch(self.0.statements.take(), args, TAKEN_SHAPE).await?
        } else {
            self.bounded(self.take_in_steps(&holder, room)).await?
        };
        let found = rows.len();
        let mut taken: Vec<_> = rows.into_iter().map(|mut row| TakenTask::read(&mut row)).collect();
        taken.retain(|taken| taken.holder.is_some());
        let dead = found - taken.len();
        if dead > 0 {
            warn!(target: "idempotent", table = self.0.table, dead,
                "task dead-lettered after too many unsettled deliveries");
        }
        taken.sort_unstable_by_key(|taken| (taken.scheduled_at, taken.seq));
        Ok((taken, found))
    }

    fn taking(&self, holder: &HolderToken) -> Vec<SqlValue> {
        vec![self.now(), self.now(), self.now(), SqlValue::from(&holder[..])]
    }

    /// Takes due tasks in several steps, for a database whose updates neither return rows nor skip locked ones. Tasks
    /// that another consumer is taking, or an open transaction has cancelled, must not block the others.
    async fn take_in_steps(&self, holder: &HolderToken, room: usize) -> Result<Vec<RowValues>, StoreError> {
        let statements = &self.0.statements;
        let numbers =
            |rows: Vec<RowValues>| rows.into_iter().map(|mut row| SqlValue::from(row.int())).collect::<Vec<_>>();
        let planned = self.fetch(statements.__due(), vec![self.now(), limit(room * PLANNED)], "i").await?;
        if planned.is_empty() {
            return Ok(Vec::new());
        }
        let take = async |connection: &mut Db::Connection| {
            let mut transaction = connection.begin().await?;
            let mut locked = Vec::new();
            for some in numbers(planned).chunks(room) {
                let text = statements.lock(some.len());
                let args = [some, &[self.now()]].concat();
                locked = numbers(Db::fetch(&mut transaction, text.into(), args, "i").await?);
                if !locked.is_empty() {
                    break;
                }
            }
            if locked.is_empty() {
                return Ok(Vec::new());
            }
            let mut args = self.taking(holder);
            args.extend(locked.iter().cloned());
            Db::execute(&mut transaction, statements.take_locked(locked.len()).into(), args).await?;
            let text = statements.taken(locked.len());
            let rows = Db::fetch(&mut transaction, text.into(), locked, TAKEN_SHAPE).await?;
            transaction.commit().await?;
            Ok(rows)
        };
        self.on_connection(take).await
    }
}

/// The number of times that a planned batch may be found locked by others, plus one.
const PLANNED: usize = 4;

fn limit(room: usize) -> SqlValue {
    SqlValue::from(i64::try_from(room).unwrap_or(i64::MAX))
}
