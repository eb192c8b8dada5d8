//! The [`Outbox`] type: a handle to the tables of an outbox, which the other files extend.
use std::fmt;
use std::sync::Arc;

use idempotent_core::{Clock, Timestamp};
use sqlx::Pool;
use tokio::sync::Notify;

use super::OutboxError;
use super::confirmation_queue::ConfirmationQueue;
use super::database::{Arg, Cells, OutboxDb};
use super::statements::OutboxStatements;

/// Messages that are written in the transaction of what they tell of, and sent by a [`Relay`] once that has committed.
///
/// A payment and its message are one transaction or none: a process that dies between the commit and the sending loses
/// nothing, and one whose transaction is rolled back has announced nothing. Each message has a stub (S3's word) that says what
/// has become of it; it is sent again, under the same id, until it is confirmed. Consumers get it at least once: an annotated
/// handler makes it take effect once.
///
/// Times are the database's. Cheap to clone.
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
/// outbox.wake(); // or the relay finds it by itself, some ms later
/// # Ok(())
/// # }
/// ```
pub struct Outbox<Db: OutboxDb>(pub(super) Arc<OutboxInner<Db>>);

pub(super) struct OutboxInner<Db: OutboxDb> {
    pub(super) pool: Pool<Db>,
    pub(super) statements: OutboxStatements,
    pub(super) table: String,
    /// Instead of the database's.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// A message was written here, or its transaction has committed.
    pub(super) written: Notify,
    pub(super) confirmations: ConfirmationQueue,
}

/// Of the same tables; derived, it would ask the database's type for it.
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
    /// Tells the relays of this process that a transaction with messages has committed, so that they look at once.
    pub fn wake(&self) {
        self.0.written.notify_waiters();
        // For one that is just about to wait.
        self.0.written.notify_one();
    }

    /// The statements that are sent again and again, so that tests can have them explained, and break them.
    #[doc(hidden)]
    #[must_use]
    pub fn __statements(&self) -> Vec<(&'static str, String)> {
        self.0.statements.all()
    }

    /// The time as it goes into a statement: none where that is the database's.
    pub(super) fn now(&self) -> Arg {
        let micros = |now: Timestamp| i64::try_from(now.0).unwrap_or(i64::MAX);
        Arg::Int(self.0.clock.as_ref().map(|clock| micros(clock.wall())))
    }

    pub(super) async fn execute(&self, sql: impl Into<Arc<str>>, args: Vec<Arg>) -> Result<u64, OutboxError> {
        let mut connection = self.0.pool.acquire().await?;
        Ok(Db::execute(&mut connection, sql.into(), args).await?)
    }

    pub(super) async fn fetch(
        &self,
        sql: impl Into<Arc<str>>,
        args: Vec<Arg>,
        shape: &'static str,
    ) -> Result<Vec<Cells>, OutboxError> {
        let mut connection = self.0.pool.acquire().await?;
        Ok(Db::fetch(&mut connection, sql.into(), args, shape).await?)
    }
}
