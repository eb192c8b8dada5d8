//! Operations for administrators: list, inspect, resend, void and purge messages. Resending and voiding write an
//! audit entry.
use std::fmt;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::OutboundMessage;
use sqlx::Database;

use super::database::{OutboxDb, SqlValue};
use super::lease::micros;
use super::record::{self, OutboxRecord, OutboxStatus};
use super::statements::{OF_CONSUMER, OF_MESSAGE};
use super::{Outbox, OutboxError, OutboxErrorKind};

/// A message in the result of [`Outbox::list`].
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboxEntry {
    /// The message's id.
    pub id: String,
    /// The topic of the message.
    pub topic: String,
    /// The outbox's data about the message.
    pub record: OutboxRecord,
}

/// Omits the id, which may contain anything.
impl fmt::Debug for OutboxEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxEntry").field("topic", &self.topic).field("record", &self.record).finish_non_exhaustive()
    }
}

/// An entry of the audit log: an operation on a message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The name of the operator.
    pub by: String,
    /// `resend` or `void`.
    pub action: String,
    /// The reason that the operator gave.
    pub reason: String,
    /// The time of the operation, by the database's clock.
    pub at: Timestamp,
}

/// Maximum number of messages of a page.
const MAX_PAGE: u32 = 10_000;

impl<Db: OutboxDb> Outbox<Db> {
    /// Returns up to `at_most` messages with this status, in the order in which they were written, and at most 10,000.
    /// Pass 0 as `behind` for the first page, and the [`seq`](OutboxRecord::seq) of the last message of a page for the
    /// next one.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(&self, status: OutboxStatus, behind: i64, at_most: u32) -> Result<Vec<OutboxEntry>, OutboxError> {
        let at_most = i64::from(at_most.min(MAX_PAGE));
        let args = vec![SqlValue::from(status.number()), SqlValue::from(behind), SqlValue::from(at_most)];
        let rows = self.fetch(self.0.statements.list(), args, "iiiibbiiibbb").await?;
        let entry = |mut row| OutboxEntry { record: OutboxRecord::read(&mut row), id: row.text(), topic: row.text() };
        Ok(rows.into_iter().map(entry).collect())
    }

    /// Returns the outbox's data about a message, and the message itself. The message is `None` if its row is
    /// damaged.
    ///
    /// # Errors
    /// The database failed.
    pub async fn inspect(&self, id: &str) -> Result<Option<(OutboxRecord, Option<OutboundMessage>)>, OutboxError> {
        let rows =
            self.fetch(self.0.statements.inspect(), vec![SqlValue::from(id.as_bytes())], "iiiibbiiibbbbbbbb").await?;
        Ok(rows.into_iter().next().map(|mut row| (OutboxRecord::read(&mut row), record::content(&mut row).1)))
    }

    /// Makes an unconfirmed or dead message due now and resets its number of sends. The method writes an audit entry
    /// with the operator and the reason in the same transaction. If a relay is sending the message or a consumer is
    /// processing it, the consumer receives the message once more, with the same id.
    ///
    /// # Errors
    /// [`NotFound`](OutboxErrorKind::NotFound): no message has this id, or the message is confirmed or void.
    /// [`Invalid`](OutboxErrorKind::Invalid): the operator or the reason is empty or too long.
    ///
    /// # Cancellation
    /// The change may or may not be written: roll back.
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
    /// Same as [`resend`](Self::resend).
    ///
    /// # Cancellation
    /// The change may or may not be written: roll back.
    pub async fn void(
        &self,
        connection: &mut <Db as Database>::Connection,
        id: &str,
        by: &str,
        reason: &str,
    ) -> Result<(), OutboxError> {
        self.change(connection, self.0.statements.void(), "void", [id, by, reason]).await
    }

    /// Returns the audit entries of a message, in order.
    ///
    /// # Errors
    /// The database failed.
    pub async fn audit(&self, id: &str) -> Result<Vec<AuditEntry>, OutboxError> {
        let rows = self.fetch(self.0.statements.notes(), vec![SqlValue::from(id.as_bytes())], "bbbi").await?;
        let audited = |mut row: super::database::RowValues| AuditEntry {
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
    /// The database failed.
    ///
    /// # Cancellation
    /// The rows may or may not be removed.
    pub async fn purge(&self, age: Duration, at_most: u32) -> Result<u64, OutboxError> {
        let mut removed = 0;
        for status in [OutboxStatus::Confirmed, OutboxStatus::Void] {
            let rest = i64::from(at_most) - i64::try_from(removed).unwrap_or(i64::MAX);
            let args = vec![
                SqlValue::from(status.number()),
                self.now(),
                SqlValue::from(micros(age)),
                SqlValue::from(rest.max(0)),
            ];
            removed += self.execute(self.0.statements.purge(), args).await?;
        }
        for kind in [OF_MESSAGE, OF_CONSUMER] {
            let args = vec![SqlValue::from(kind), self.now(), SqlValue::from(micros(age))];
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
            return invalid("the operator is empty or too long: pass a name of 1 to 255 bytes");
        }
        if reason.is_empty() || reason.len() > 4_096 {
            return invalid("the reason is empty or too long: pass a text of 1 to 4,096 bytes");
        }
        let changed = Db::execute(connection, sql.into(), vec![self.now(), SqlValue::from(id.as_bytes())]).await?;
        if changed == 0 {
            return Err(OutboxError::new(
                OutboxErrorKind::NotFound,
                "no unconfirmed or dead message has this id: check its status with `inspect`",
            ));
        }
        let mut args: Vec<_> = [id, by, action, reason].map(|part| SqlValue::from(part.as_bytes())).into();
        args.push(self.now());
        Db::execute(connection, self.0.statements.note().into(), args).await?;
        self.0.written.notify_one();
        Ok(())
    }
}
