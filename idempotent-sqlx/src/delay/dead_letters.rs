//! Dead letters: listed, put back, removed.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DeadLetters, DelayError, Delivery, SourceError, SourceErrorKind};

use super::DelayTable;
use super::database::DelayDb;
use super::error::{delay_error, source_error};
use super::source::read;
use super::statements::LETTER_SHAPE;
use super::taken_task::TakenTask;
use crate::desk::{Arg, micros};

/// The dead letters of a table, the oldest first, for [`Redrive`](idempotent_mq::Redrive) and for whoever looks at them: each is
/// put back in one step, as a first attempt that has died. One whose key was scheduled anew meanwhile is put back beside that,
/// and is not to be called off by its key.
#[derive(Debug)]
#[must_use]
pub struct DelayTableDeadLetters<Db: DelayDb> {
    table: DelayTable<Db>,
    /// When the one died that was brought last, and its number.
    behind: (i64, i64),
    /// It has not been put back.
    brought: bool,
}

impl<Db: DelayDb> DelayTableDeadLetters<Db> {
    /// Those of this table.
    pub fn new(table: &DelayTable<Db>) -> Self {
        Self { table: table.clone(), behind: (i64::MIN, i64::MIN), brought: false }
    }
}

#[async_trait]
impl<Db: DelayDb> DeadLetters for DelayTableDeadLetters<Db> {
    async fn count(&mut self) -> Result<u64, SourceError> {
        let rows = self.table.fetch(self.table.0.statements.count_dead(), Vec::new(), "i").await;
        let rows = rows.map_err(|error| source_error("counting the dead letters", error))?;
        Ok(rows.into_iter().next().map_or(0, |mut row| row.int().unsigned_abs()))
    }

    async fn next(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError> {
        let (died, seq) = self.behind;
        let args = vec![Arg::from(died), Arg::from(died), Arg::from(seq)];
        let rows = self.table.fetch(self.table.0.statements.letter(), args, LETTER_SHAPE).await;
        let rows = rows.map_err(|error| source_error("reading the dead letters", error))?;
        let Some(mut row) = rows.into_iter().next() else {
            self.brought = false;
            return Ok(None);
        };
        let taken = TakenTask::read(&mut row);
        let (died, id, reason) = (row.int(), row.text_or_null(), row.text_or_null());
        (self.behind, self.brought) = ((died, taken.seq), true);
        let died = Timestamp(died.unsigned_abs());
        let mut letter = DeadLetter::because(reason.unwrap_or_default(), died);
        (letter.id, letter.attempts, letter.deaths) = (id, taken.attempt, taken.deaths);
        letter.first_at = taken.first_at.unwrap_or(died);
        let mut delivery = read(&Arc::from(self.table.0.table.as_str()), taken);
        delivery.delivered = None;
        Ok(Some((delivery, Some(letter))))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        if !self.brought {
            let text = "`next` brought no letter that could be put back";
            return Err(SourceError::new(SourceErrorKind::Fatal, text));
        }
        let args = || vec![self.table.now(), Arg::from(self.behind.1)];
        let back = match self.table.revive(true, args()).await {
            // Another one of its key is there.
            Ok(None) => self.table.revive(false, args()).await,
            back => back,
        };
        let back = back.map_err(|error| source_error("putting back", error))?;
        self.brought = false;
        self.table.notify(self.table.wakeup_after(std::time::Duration::ZERO, false));
        Ok(back.unwrap_or_default() > 0)
    }
}

impl<Db: DelayDb> DelayTable<Db> {
    /// `None`: its key is another row's.
    async fn revive(&self, with_key: bool, args: Vec<Arg>) -> Result<Option<u64>, idempotent_core::StoreError> {
        let text = self.0.statements.revive(with_key).into();
        let query = async {
            let mut connection = self.0.pool.acquire().await.map_err(|error| self.store_error(false, error))?;
            match Db::execute(&mut connection, text, args).await {
                Ok(rows) => Ok(Some(rows)),
                Err(error) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => Ok(None),
                Err(error) => Err(self.store_error(true, error)),
            }
        };
        self.bounded(query).await
    }

    /// Removes dead letters for good, the oldest first, no more than `limit`. Says how many.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Some may be removed.
    pub async fn purge_dead(&self, limit: u64) -> Result<u64, DelayError> {
        let limit = i64::try_from(limit).unwrap_or(micros(std::time::Duration::MAX));
        let purged = self.execute(self.0.statements.purge_dead(), vec![Arg::from(limit)]).await;
        purged.map_err(|error| delay_error("purging", error))
    }
}
