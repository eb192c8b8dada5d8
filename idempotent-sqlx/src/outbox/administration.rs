//! What people do with messages: list, look, send again, call off. Whatever they change is noted.
use std::fmt;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::OutboundMessage;
use sqlx::Database;

use super::database::{Arg, OutboxDb};
use super::lease::micros;
use super::record::{self, OutboxRecord, OutboxStatus};
use super::statements::{OF_CONSUMER, OF_MESSAGE};
use super::{Outbox, OutboxError, OutboxErrorKind};

/// A message in a list.
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboxEntry {
    /// The message's id.
    pub id: String,
    /// Where it goes.
    pub topic: String,
    /// What is known of it.
    pub record: OutboxRecord,
}

/// Without its id, which may be anything.
impl fmt::Debug for OutboxEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxEntry").field("topic", &self.topic).field("record", &self.record).finish_non_exhaustive()
    }
}

/// Something a person did with a message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Who.
    pub by: String,
    /// `resend` or `void`.
    pub action: String,
    /// Why.
    pub reason: String,
    /// When, by the database.
    pub at: Timestamp,
}

impl<Db: OutboxDb> Outbox<Db> {
    /// Messages of this status in the order they were written, from behind this number on ([`OutboxRecord::seq`] of the last one of
    /// the page before; 0 for the first page).
    ///
    /// # Errors
    /// The database's.
    pub async fn list(&self, status: OutboxStatus, behind: i64, at_most: u32) -> Result<Vec<OutboxEntry>, OutboxError> {
        let args = vec![Arg::from(status.number()), Arg::from(behind), Arg::from(i64::from(at_most))];
        let rows = self.fetch(self.0.statements.list(), args, "iiiibbiiibbb").await?;
        let entry = |mut row| OutboxEntry { record: OutboxRecord::read(&mut row), id: row.text(), topic: row.text() };
        Ok(rows.into_iter().map(entry).collect())
    }

    /// What is known of a message, and the message; the latter is `None` if its row was damaged.
    ///
    /// # Errors
    /// The database's.
    pub async fn inspect(&self, id: &str) -> Result<Option<(OutboxRecord, Option<OutboundMessage>)>, OutboxError> {
        let rows = self.fetch(self.0.statements.inspect(), vec![Arg::from(id.as_bytes())], "iiiibbiiibbbbbbbb").await?;
        Ok(rows.into_iter().next().map(|mut row| (OutboxRecord::read(&mut row), record::content(&mut row).1)))
    }

    /// Sends an unconfirmed or dead message now, wherever it lies, and counts its sendings anew. Call it in a transaction: that
    /// it was done, by whom and why is noted in the same one. Also while a relay sends it or a consumer has it, which then gets it
    /// once more, under the same id.
    ///
    /// # Errors
    /// [`NotFound`](OutboxErrorKind::NotFound): there is none of this id, or it is confirmed or void.
    /// [`Invalid`](OutboxErrorKind::Invalid): nobody is named.
    ///
    /// # Cancellation
    /// It may be done or not: roll back.
    pub async fn resend(
        &self,
        connection: &mut <Db as Database>::Connection,
        id: &str,
        by: &str,
        reason: &str,
    ) -> Result<(), OutboxError> {
        self.change(connection, self.0.statements.resend(), "resend", [id, by, reason]).await
    }

    /// Voids an unconfirmed or dead message: no relay sends the message again, and later messages of its aggregate no longer wait
    /// for it. Like [`resend`](Self::resend), this method writes an audit entry in the same transaction.
    ///
    /// A copy that is already with the broker has no effect either, if its consumer has this outbox as its
    /// [log](idempotent_mq::ConsumerBuilder::log): the consumer acknowledges the copy without a run, and the message stays void. Three
    /// kinds of copies still run:
    ///
    /// - a copy that a consumer had received before the transaction was committed, whether it ran or waited for a free handler,
    /// - a copy at a consumer without this log, or with [`skip_consumed(false)`](idempotent_mq::ConsumerBuilder::skip_consumed),
    /// - a copy without the header [`OUTBOX_HEADER`](idempotent_mq::OUTBOX_HEADER).
    ///
    /// A message that such a copy consumes stays void, too. To undo an effect, send another message.
    ///
    /// # Errors
    /// As [`resend`](Self::resend).
    ///
    /// # Cancellation
    /// It may be done or not: roll back.
    pub async fn void(
        &self,
        connection: &mut <Db as Database>::Connection,
        id: &str,
        by: &str,
        reason: &str,
    ) -> Result<(), OutboxError> {
        self.change(connection, self.0.statements.void(), "void", [id, by, reason]).await
    }

    /// What people did with a message, in order.
    ///
    /// # Errors
    /// The database's.
    pub async fn audit(&self, id: &str) -> Result<Vec<AuditEntry>, OutboxError> {
        let rows = self.fetch(self.0.statements.notes(), vec![Arg::from(id.as_bytes())], "bbbi").await?;
        let audited = |mut row: super::database::Cells| AuditEntry {
            by: row.text(),
            action: row.text(),
            reason: row.text(),
            at: Timestamp(row.int().unsigned_abs()),
        };
        Ok(rows.into_iter().map(audited).collect())
    }

    /// Removes up to `at_most` messages that were confirmed or voided longer ago than `age`, and returns their number. An id that was
    /// removed can be written, and sent, again. Dead messages stay until an operator resends or voids them.
    ///
    /// Also removes rows of the message log that are as old. A consumer no longer
    /// [skips](idempotent_mq::ConsumerBuilder::skip_consumed) a message whose rows are removed: let `age` be longer than the time
    /// after which the broker may still deliver a message again.
    ///
    /// # Errors
    /// The database's.
    ///
    /// # Cancellation
    /// They may be removed or not.
    pub async fn purge(&self, age: Duration, at_most: u32) -> Result<u64, OutboxError> {
        let mut removed = 0;
        for status in [OutboxStatus::Confirmed, OutboxStatus::Void] {
            let rest = i64::from(at_most) - i64::try_from(removed).unwrap_or(i64::MAX);
            let args = vec![Arg::from(status.number()), self.now(), Arg::from(micros(age)), Arg::from(rest.max(0))];
            removed += self.execute(self.0.statements.purge(), args).await?;
        }
        for kind in [OF_MESSAGE, OF_CONSUMER] {
            let args = vec![Arg::from(kind), self.now(), Arg::from(micros(age))];
            self.execute(self.0.statements.forget_old(), args).await?;
        }
        Ok(removed)
    }

    async fn change(
        &self,
        connection: &mut <Db as Database>::Connection,
        sql: String,
        action: &'static str,
        [id, by, reason]: [&str; 3],
    ) -> Result<(), OutboxError> {
        let invalid = |what: &str| Err(OutboxError::new(OutboxErrorKind::Invalid, what));
        if by.is_empty() || by.len() > 255 {
            return invalid("say who does this: a name of 1 to 255 bytes");
        }
        if reason.is_empty() || reason.len() > 4_096 {
            return invalid("say why this is done: a reason of 1 to 4,096 bytes");
        }
        let changed = Db::execute(connection, sql.into(), vec![self.now(), Arg::from(id.as_bytes())]).await?;
        if changed == 0 {
            return Err(OutboxError::new(
                OutboxErrorKind::NotFound,
                "there is no message of this id that is unconfirmed or dead: look at it by `inspect`",
            ));
        }
        let mut args: Vec<_> = [id, by, action, reason].map(|part| Arg::from(part.as_bytes())).into();
        args.push(self.now());
        Db::execute(connection, self.0.statements.note().into(), args).await?;
        self.0.written.notify_one();
        Ok(())
    }
}
