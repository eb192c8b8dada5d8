//! Listing, redriving, removing and purging dead letters.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DelayError, LetterBox, SourceError, StoredLetter};

use super::DelayTable;
use super::database::DelayDb;
use super::error::{delay_error, source_error};
use super::source::read;
use super::statements::LETTER_SHAPE;
use super::taken_task::TakenTask;
use crate::sql_database::{SqlValue, micros};

/// The dead letters of a table, the oldest first, for [`Redrive`](idempotent_mq::Redrive) and for inspection. Each
/// one is put back with one statement, as a first attempt that has died once. If its key was scheduled again in the
/// meantime, the dead letter is put back without a key, and cannot be cancelled.
#[derive(Debug)]
#[must_use]
pub struct DelayTableDeadLetters<Db: DelayDb> {
    table: DelayTable<Db>,
    /// The time of death and the number of the letter that was read last, after which the search continues.
    behind: (i64, i64),
    listed: Option<(i64, i64)>,
}

impl<Db: DelayDb> DelayTableDeadLetters<Db> {
    /// Creates a reader of the dead letters of `table`.
    pub fn new(table: &DelayTable<Db>) -> Self {
        Self { table: table.clone(), behind: (i64::MIN, i64::MIN), listed: None }
    }
}

const COUNTING: &str = "counting the dead letters";
const READING: &str = "reading the dead letters";
const PUTTING_BACK: &str = "putting back";
const REMOVING: &str = "removing a dead letter";

#[async_trait]
impl<Db: DelayDb> LetterBox for DelayTableDeadLetters<Db> {
    /// The time of death and the number.
    type Letter = (i64, i64);

    fn listed(&mut self) -> &mut Option<(i64, i64)> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let rows = self.table.fetch(self.table.0.statements.count_dead(), Vec::new(), "i").await;
        let rows = rows.map_err(|error| source_error(COUNTING, error))?;
        Ok(rows.into_iter().next().map_or(0, |mut row| row.int().unsigned_abs()))
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, (i64, i64))>, SourceError> {
        let (died, seq) = self.behind;
        let args = vec![SqlValue::from(died), SqlValue::from(died), SqlValue::from(seq)];
        let rows = self.table.fetch(self.table.0.statements.letter(), args, LETTER_SHAPE).await;
        let rows = rows.map_err(|error| source_error(READING, error))?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(None) };
        let taken = TakenTask::read(&mut row);
        let (died, id, reason) = (row.int(), row.text_or_null(), row.text_or_null());
        self.behind = (died, taken.seq);
        let (seq, died) = (taken.seq, Timestamp(died.unsigned_abs()));
        let mut letter = DeadLetter::because(reason.unwrap_or_default(), died);
        (letter.id, letter.attempts, letter.deaths) = (id, taken.attempt, taken.deaths);
        letter.first_at = taken.first_at.unwrap_or(died);
        let mut delivery = read(&Arc::from(self.table.0.table.as_str()), taken);
        delivery.delivered = None;
        Ok(Some((StoredLetter::at(seq, delivery, Some(letter)), self.behind)))
    }

    async fn revive(&mut self, (_, seq): &(i64, i64)) -> Result<bool, SourceError> {
        let args = || vec![self.table.now(), SqlValue::from(*seq)];
        let back = match self.table.revive(true, args()).await {
            // Another task has the key.
            Ok(None) => self.table.revive(false, args()).await,
            back => back,
        };
        let back = back.map_err(|error| source_error(PUTTING_BACK, error))?;
        self.table.notify(self.table.wakeup_after(std::time::Duration::ZERO, false));
        Ok(back.unwrap_or_default() > 0)
    }

    async fn remove(&mut self, (died, seq): &(i64, i64)) -> Result<bool, SourceError> {
        let args = vec![SqlValue::from(*seq), SqlValue::from(*died)];
        let removed = self.table.execute(self.table.0.statements.discard(), args).await;
        Ok(removed.map_err(|error| source_error(REMOVING, error))? > 0)
    }
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Returns `None` if another row has the key.
    async fn revive(&self, with_key: bool, args: Vec<SqlValue>) -> Result<Option<u64>, idempotent_core::StoreError> {
        let text = self.0.statements.revive(with_key).into();
        let revived = async |connection: &mut Db::Connection| match Db::execute(connection, text, args).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => Ok(None),
            Err(error) => Err(error),
        };
        self.on_connection(revived).await
    }

    /// Removes up to `limit` dead letters, the oldest first, and returns their number.
    ///
    /// # Errors
    /// The database failed; see [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Some dead letters may be removed.
    pub async fn purge_dead(&self, limit: u64) -> Result<u64, DelayError> {
        let limit = i64::try_from(limit).unwrap_or(micros(std::time::Duration::MAX));
        let purged = self.execute(self.0.statements.purge_dead(), vec![SqlValue::from(limit)]).await;
        purged.map_err(|error| delay_error("purging", error))
    }
}
