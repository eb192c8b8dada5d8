//! The [`Outbox`] type: a handle to the tables of an outbox, which the other files extend.
use std::fmt;
use std::sync::Arc;

use idempotent_core::{Clock, Timestamp};
use sqlx::Pool;
use tokio::sync::Notify;

use super::OutboxError;
use super::confirmation_queue::ConfirmationQueue;
use super::database::{OutboxDb, RowValues, SqlValue};
use super::statements::OutboxStatements;
use crate::table_database::on_connection;

/// A transactional outbox: messages are written in a transaction of your database, and a [`Relay`](super::Relay)
/// sends them after the commit.
///
/// A payment and its message share one transaction. If the process dies between the commit and the send, the message
/// is sent later; if the transaction is rolled back, nothing is sent. The outbox keeps an
/// [`OutboxRecord`](super::OutboxRecord) for each message and resends the message, with the same id, until a consumer
/// confirms it. Consumers receive each message at least once; an annotated handler makes the message take effect
/// once.
///
/// All times are those of the database. Clones share the same tables and are cheap.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotent_mq::OutboundMessage;
/// use idempotent_sqlx::Outbox;
///
/// let outbox = Outbox::builder(pool.clone()).create(true).open().await?;
///
/// let mut tx = pool.begin().await?;
/// sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 17").execute(&mut *tx).await?;
/// let paid = OutboundMessage::new("payments", "payment-4711", br#"{"account":17,"amount":5}"#.to_vec());
/// outbox.enqueue(&mut tx, &paid.aggregate("account-17")).await?;
/// tx.commit().await?;
/// outbox.wake(); // otherwise, the relay finds the message some ms later
/// # Ok(())
/// # }
/// ```
pub struct Outbox<Db: OutboxDb>(pub(super) Arc<OutboxInner<Db>>);

pub(super) struct OutboxInner<Db: OutboxDb> {
    pub(super) pool: Pool<Db>,
    pub(super) statements: OutboxStatements,
    pub(super) table: String,
    /// Overrides the database's clock.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// Notifies the relays of this process that a message was written, or that its transaction has committed.
    pub(super) written: Notify,
    pub(super) confirmations: ConfirmationQueue,
}

/// Implemented without `derive`, which would require `Db: Clone`.
impl<Db: OutboxDb> Clone for Outbox<Db> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Db: OutboxDb> fmt::Debug for Outbox<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("table", &self.0.table).finish_non_exhaustive()
    }
}

impl<Db: OutboxDb> Outbox<Db> {
    /// Wakes the relays of this process, so that they look for messages at once. Call this method after the commit.
    pub fn wake(&self) {
        self.0.written.notify_waiters();
        // `notify_waiters` misses a relay that is about to wait; the stored permit of `notify_one` reaches that
        // relay.
        self.0.written.notify_one();
    }

    /// Returns the statements that run repeatedly, so that tests can explain and change them.
    #[doc(hidden)]
    #[must_use]
    pub fn __statements(&self) -> Vec<(&'static str, String)> {
        self.0.statements.all()
    }

    /// Returns the time as a statement's argument: null if the database's clock is used.
    pub(super) fn now(&self) -> SqlValue {
        let micros = |now: Timestamp| i64::try_from(now.0).unwrap_or(i64::MAX);
        SqlValue::Int(self.0.clock.as_ref().map(|clock| micros(clock.wall())))
    }

    pub(super) async fn execute(&self, sql: impl Into<Arc<str>>, args: Vec<SqlValue>) -> Result<u64, OutboxError> {
        let sql = sql.into();
        Ok(on_connection(&self.0.pool, async |connection| Db::execute(connection, sql, args).await).await?)
    }

    pub(super) async fn fetch(
        &self,
        sql: impl Into<Arc<str>>,
        args: Vec<SqlValue>,
        shape: &'static str,
    ) -> Result<Vec<RowValues>, OutboxError> {
        let sql = sql.into();
        Ok(on_connection(&self.0.pool, async |connection| Db::fetch(connection, sql, args, shape).await).await?)
    }
}
