//! Scheduling and cancelling tasks, alone or in the caller's transaction.
use async_trait::async_trait;
use idempotent_core::{StoreError, StoreErrorKind, Timestamp};
use idempotent_mq::{Cancelled, Delay, DelayError, Scheduled};
use sqlx::Database;

use super::DelayTable;
use super::database::DelayDb;
use super::error::delay_error;
use super::handle::Wakeup;
use super::scheduled_task::{DueTime, ScheduledTask, check_key};
use crate::packed::pack;
use crate::sql_database::{SqlValue, micros};

/// The maximum number of attempts: the existing task may be settled before it is read.
const TRIES: usize = 3;

impl<Db: DelayDb> DelayTable<Db> {
    /// Schedules a task with one statement. The call is idempotent by the task's key: the first task stays until it
    /// is settled or cancelled.
    ///
    /// # Errors
    /// The task is invalid, or the database failed; see [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// The task may or may not be scheduled. Calling the method again is safe.
    pub async fn put(&self, work: &ScheduledTask) -> Result<Scheduled, DelayError> {
        work.check()?;
        let scheduled = self.on_connection(async |connection| self.write(connection, work).await).await;
        self.notify(self.wakeup_for(work.when, false));
        scheduled.and_then(written).map_err(|error| delay_error("scheduling", error))
    }

    /// Schedules a task in your transaction; the task exists once the transaction commits.
    ///
    /// # Errors
    /// The task is invalid, or the database failed; see [`kind`](DelayError::kind). Roll back, and retry unless the
    /// kind is [`Refused`](idempotent_mq::DelayErrorKind::Refused).
    ///
    /// # Cancellation
    /// The task may or may not be written: roll back.
    pub async fn put_in(
        &self,
        connection: &mut <Db as Database>::Connection,
        work: &ScheduledTask,
    ) -> Result<Scheduled, DelayError> {
        work.check()?;
        let scheduled = self.write(connection, work).await;
        // The transaction has not committed yet: the sources look several times within a short period.
        self.notify(self.wakeup_for(work.when, true));
        let scheduled = scheduled.map_err(|error| self.store_error(true, error));
        scheduled.and_then(written).map_err(|error| delay_error("scheduling", error))
    }

    /// Schedules `payload` for `at`, by the database's clock, in your transaction, like
    /// [`schedule`](Delay::schedule).
    ///
    /// # Errors
    /// Same as [`put_in`](Self::put_in).
    ///
    /// # Cancellation
    /// Same as [`put_in`](Self::put_in).
    pub async fn schedule_in(
        &self,
        connection: &mut <Db as Database>::Connection,
        key: &str,
        at: Timestamp,
        payload: &[u8],
    ) -> Result<Scheduled, DelayError> {
        self.put_in(connection, &ScheduledTask::at(key, at, payload)).await
    }

    /// Cancels a task in your transaction, like [`cancel`](Delay::cancel). No consumer receives the task while the
    /// transaction is open.
    ///
    /// # Errors
    /// Same as [`put_in`](Self::put_in).
    ///
    /// # Cancellation
    /// Same as [`put_in`](Self::put_in).
    pub async fn cancel_in(
        &self,
        connection: &mut <Db as Database>::Connection,
        key: &str,
    ) -> Result<Cancelled, DelayError> {
        check_key(key)?;
        let gone = self.delete_scheduled(connection, key).await.map_err(|error| self.store_error(true, error));
        gone.map_err(|error| delay_error("cancelling", error))
    }

    /// Returns `None` if the task was not written, and no task of its key exists.
    async fn write(
        &self,
        connection: &mut Db::Connection,
        work: &ScheduledTask,
    ) -> Result<Option<Scheduled>, sqlx::Error> {
        let statements = &self.0.statements;
        let (after, due) = match work.when {
            DueTime::At(time) => (false, vec![SqlValue::from(i64::try_from(time.0).unwrap_or(i64::MAX))]),
            DueTime::After(delay) => (true, vec![self.now(), self.later_by(delay)]),
        };
        let key = || SqlValue::from(work.key.as_bytes());
        let mut args = vec![key(), key(), SqlValue::Bytes(Some(pack(&work.headers))), SqlValue::from(&*work.body)];
        args.extend(due.iter().chain(&due).cloned());
        for _ in 0..TRIES {
            if Db::execute(connection, statements.schedule(after).into(), args.clone()).await? > 0 {
                return Ok(Some(Scheduled::New));
            }
            // The key may exist already. Only this query proves it, since a row can be missing for another reason.
            let found = Db::fetch(connection, statements.scheduled().into(), vec![key()], "i").await?;
            if let Some(mut row) = found.into_iter().next() {
                return Ok(Some(Scheduled::Already { at: Timestamp(row.int().unsigned_abs()) }));
            }
        }
        Ok(None)
    }

    async fn delete_scheduled(&self, connection: &mut Db::Connection, key: &str) -> Result<Cancelled, sqlx::Error> {
        let (statements, args) = (&self.0.statements, || vec![SqlValue::from(key.as_bytes())]);
        if statements.cancel_answers() {
            let gone = Db::fetch(connection, statements.cancel(false).into(), args(), "i").await?;
            let held = gone.into_iter().next().map(|mut row| row.int());
            return Ok(match held {
                Some(0) => Cancelled::Done,
                Some(_) => Cancelled::Delivering,
                None => Cancelled::Unknown,
            });
        }
        for (free, then) in [(true, Cancelled::Done), (false, Cancelled::Delivering)] {
            if Db::execute(connection, statements.cancel(free).into(), args()).await? > 0 {
                return Ok(then);
            }
        }
        Ok(Cancelled::Unknown)
    }

    /// Returns a delay as a statement's argument, extended by the resolution of the database's clock.
    pub(super) fn later_by(&self, delay: std::time::Duration) -> SqlValue {
        let tick = if self.0.clock.is_none() { self.0.statements.tick() } else { std::time::Duration::ZERO };
        SqlValue::from(micros(delay.saturating_add(tick)))
    }

    fn wakeup_for(&self, when: DueTime, open: bool) -> Wakeup {
        match when {
            DueTime::At(time) => Wakeup::At { at: i64::try_from(time.0).unwrap_or(i64::MAX), open },
            DueTime::After(delay) => self.wakeup_after(delay, open),
        }
    }
}

/// The key becomes the id of the deliveries.
#[async_trait]
impl<Db: DelayDb> Delay for DelayTable<Db> {
    async fn schedule(&self, key: &str, at: Timestamp, payload: &[u8]) -> Result<Scheduled, DelayError> {
        self.put(&ScheduledTask::at(key, at, payload)).await
    }

    async fn cancel(&self, key: &str) -> Result<Cancelled, DelayError> {
        check_key(key)?;
        let gone = self.on_connection(async |connection| self.delete_scheduled(connection, key).await).await;
        gone.map_err(|error| delay_error("cancelling", error))
    }
}

fn written(scheduled: Option<Scheduled>) -> Result<Scheduled, StoreError> {
    let text =
        "the task was not written, and no task of this key exists: retry, in a new transaction if this call was in one";
    scheduled.ok_or_else(|| StoreError::new(StoreErrorKind::NotApplied).because(text))
}
