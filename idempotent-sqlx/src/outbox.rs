//! The outbox: a message is written in the transaction of what it tells of, and sent until a consumer has done what it asks.
//!
//! Read in this order: `stub` (what is kept of a message), `decide` (whether it is sent), `sql` (the statements), `desk` (what
//! a database has to do), `lease` (who sends it), `relay` (sending).
mod builder;
mod decide;
mod desk;
mod ends;
mod enqueue;
mod error;
mod lease;
mod log;
mod manual;
mod nonce;
mod packed;
mod place;
mod relay;
mod sql;
mod stub;
mod timed;

use std::fmt;
use std::sync::Arc;

use idempotent_core::{Clock, Timestamp};
use sqlx::Pool;
use tokio::sync::Notify;

pub use self::builder::OutboxBuilder;
pub use self::decide::{ConsumerProgress, DeferReason, ResendDecision, ResendPolicy};
pub use self::desk::OutboxDb;
use self::desk::{Arg, Cells};
use self::ends::Ends;
pub use self::enqueue::Enqueued;
pub use self::error::{OutboxError, OutboxErrorKind};
pub use self::manual::{AuditEntry, OutboxEntry};
pub use self::place::QueueOffset;
pub use self::relay::{Relay, RelayCounts, RelayRound};
use self::sql::Texts;
pub use self::stub::{OutboxRecord, OutboxStatus};

/// The columns that the statements name.
pub(crate) const COLUMNS: [&str; 22] = [
    "seq",
    "id",
    "topic",
    "business_key",
    "aggregate",
    "headers",
    "body",
    "digest",
    "nonce",
    "status",
    "sends",
    "failures",
    "queue",
    "place",
    "due_at",
    "holds",
    "created_at",
    "sent_at",
    "settled_at",
    "last_error",
    "lease_until",
    "lease_by",
];

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
pub struct Outbox<Db: OutboxDb>(Arc<Inner<Db>>);

struct Inner<Db: OutboxDb> {
    pool: Pool<Db>,
    texts: Texts,
    table: String,
    /// Instead of the database's.
    clock: Option<Arc<dyn Clock>>,
    /// A message was written here, or its transaction has committed.
    written: Notify,
    ends: Ends,
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
    /// An outbox in the database of this pool, whose connections its relay and its consumers use.
    pub fn builder(pool: Pool<Db>) -> OutboxBuilder<Db> {
        OutboxBuilder::new(pool)
    }

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
        self.0.texts.all()
    }

    /// The time as it goes into a statement: none where that is the database's.
    fn now(&self) -> Arg {
        let micros = |now: Timestamp| i64::try_from(now.0).unwrap_or(i64::MAX);
        Arg::Int(self.0.clock.as_ref().map(|clock| micros(clock.wall())))
    }

    async fn execute(&self, sql: impl Into<Arc<str>>, args: Vec<Arg>) -> Result<u64, OutboxError> {
        let mut connection = self.0.pool.acquire().await?;
        Ok(Db::execute(&mut connection, sql.into(), args).await?)
    }

    async fn fetch(
        &self,
        sql: impl Into<Arc<str>>,
        args: Vec<Arg>,
        shape: &'static str,
    ) -> Result<Vec<Cells>, OutboxError> {
        let mut connection = self.0.pool.acquire().await?;
        Ok(Db::fetch(&mut connection, sql.into(), args, shape).await?)
    }
}
