//! Deletion of a held message in the transaction of its handler.
use idempotent_mq::{Delivery, SourceError};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

use crate::error::{fatal, gone, in_transaction};
use crate::queue_name::QueueName;
use crate::statements::{archive_in, delete_in};

/// A held message, for the transaction of its handler.
///
/// A handler with the inbox deletes its own message in its transaction: effect, idempotency record and deletion commit together
/// (level L3, with the queue). A process that dies after the commit leaves no message, so no redelivery follows. The later
/// acknowledgement finds nothing to delete.
///
/// The queue must be in the database of the transaction, which is that of the store.
///
/// ```no_run
/// use idempotent_core::{Call, Executor, Identity, Scene};
/// use idempotent_mq::Delivery;
/// use idempotent_pgmq::PgmqMessage;
/// use idempotent_sqlx::{Inbox, PostgresStore};
/// use sqlx::Postgres;
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// # async fn example(delivery: Delivery) -> Result<(), Error> {
/// let store = PostgresStore::connect("postgres://app@db.internal/shop").await?;
/// let inbox = Inbox::<Postgres>::new(&Executor::new(store));
/// let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
/// inbox
///     .run(call, async |mut tx| {
///         sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 1").execute(&mut **tx).await?;
///         PgmqMessage::of(&delivery)?.delete_in(&mut tx).await?;
///         Ok::<_, Error>(())
///     })
///     .await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PgmqMessage {
    queue: QueueName,
    id: i64,
    /// The number of reads that no settlement has ended.
    delivered: i64,
}

const DELETING: &str = "deleting a message in a transaction";
const ARCHIVING: &str = "archiving a message in a transaction";

impl PgmqMessage {
    /// Returns the message of a delivery that a [`PgmqSource`](crate::PgmqSource) has received.
    ///
    /// # Errors
    /// `Fatal`: another source has received the delivery.
    pub fn of(delivery: &Delivery) -> Result<Self, SourceError> {
        let position = &delivery.position;
        let id = position.offset.as_deref().and_then(|offset| offset.parse().ok());
        let (Some(id), Some(delivered)) = (id, delivery.delivered) else {
            return Err(fatal(DELETING, "the delivery is not from PGMQ; pass a delivery of a `PgmqSource`"));
        };
        Ok(Self { queue: QueueName::new("queue", &position.source)?, id, delivered: delivered.into() })
    }

    /// Deletes the message in this transaction. The deletion takes effect with the commit.
    ///
    /// Call this method last. If a later statement of the handler commits the transaction (`COMMIT`), the deletion is committed without
    /// the record. The run then fails with `TransactionEnded`, and no redelivery follows.
    ///
    /// # Errors
    /// - `Gone`: another consumer holds the message, or the message is settled. Roll back.
    /// - `Fatal`: the connection has no open transaction, for example after a `COMMIT` or `ROLLBACK` of the handler.
    ///   Nothing is deleted. A transaction that has begun since is not noticed.
    /// - `Fatal`, `Transient`: the statement failed, and PostgreSQL has aborted the transaction.
    ///
    /// # Cancellation
    /// The deletion may be part of the transaction.
    pub async fn delete_in(&self, transaction: &mut PgConnection) -> Result<(), SourceError> {
        self.run(transaction, delete_in(&self.queue, self.id, self.delivered), DELETING).await
    }

    /// Moves the message to the archive of its queue in this transaction.
    ///
    /// # Errors
    /// The same as [`delete_in`](Self::delete_in).
    ///
    /// # Cancellation
    /// The move may be part of the transaction.
    pub async fn archive_in(&self, transaction: &mut PgConnection) -> Result<(), SourceError> {
        self.run(transaction, archive_in(&self.queue, self.id, self.delivered), ARCHIVING).await
    }

    async fn run(&self, transaction: &mut PgConnection, sql: String, doing: &str) -> Result<(), SourceError> {
        let rows = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_all(transaction)
            .await
            .map_err(|error| in_transaction(doing, error).source())?;
        if rows.is_empty() { Err(gone(doing)) } else { Ok(()) }
    }
}
