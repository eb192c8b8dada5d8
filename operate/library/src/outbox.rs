//! The outbox that an operator looks at, in any database.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::OutboundMessage;
use idempotent_sqlx::{
    AuditEntry, Outbox, OutboxBacklog, OutboxDb, OutboxEntry, OutboxError, OutboxRecord, OutboxStatus, sqlx::Pool,
};

/// A change of one message by an operator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum OutboxChange {
    /// Sends the message once more. A consumer that has processed the message may receive it again.
    Resend,
    /// Ends the sending of the message. A copy that a consumer has received already may still take effect.
    Void,
}

impl OutboxChange {
    /// Returns the name of the action in the audit log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resend => "resend",
            Self::Void => "void",
        }
    }
}

/// An outbox, independent of its database. [`PooledOutbox`] implements this trait.
#[async_trait]
pub trait OutboxAccess: fmt::Debug + Send + Sync {
    /// Counts the waiting messages, as [`Outbox::backlog`] does.
    ///
    /// # Errors
    /// The database failed.
    async fn backlog(&self, cap: u32) -> Result<OutboxBacklog, OutboxError>;

    /// Lists messages of a status, as [`Outbox::list`] does.
    ///
    /// # Errors
    /// The database failed.
    async fn list(&self, status: OutboxStatus, after: i64, most: u32) -> Result<Vec<OutboxEntry>, OutboxError>;

    /// Returns one message, as [`Outbox::inspect`] does.
    ///
    /// # Errors
    /// The database failed.
    async fn inspect(&self, id: &str) -> Result<Option<(OutboxRecord, Option<OutboundMessage>)>, OutboxError>;

    /// Returns the changes of one message, as [`Outbox::audit`] does.
    ///
    /// # Errors
    /// The database failed.
    async fn audit(&self, id: &str) -> Result<Vec<AuditEntry>, OutboxError>;

    /// Changes a message and writes the audit entry of the outbox, in one transaction.
    ///
    /// # Errors
    /// Same as [`Outbox::resend`] and [`Outbox::void`]. Nothing was changed, unless the connection broke during the commit.
    async fn change(&self, change: OutboxChange, id: &str, by: &str, reason: &str) -> Result<(), OutboxError>;

    /// Removes old messages, as [`Outbox::purge`] does.
    ///
    /// # Errors
    /// The database failed.
    async fn purge(&self, age: Duration, most: u32) -> Result<u64, OutboxError>;
}

/// An [`Outbox`] with connections to its database.
#[derive(Clone, Debug)]
pub struct PooledOutbox<Db: OutboxDb> {
    outbox: Outbox<Db>,
    pool: Pool<Db>,
}

impl<Db: OutboxDb> PooledOutbox<Db> {
    /// Creates the access to an outbox. `pool` connects to its database.
    #[must_use]
    pub fn new(outbox: Outbox<Db>, pool: Pool<Db>) -> Self {
        Self { outbox, pool }
    }
}

#[async_trait]
impl<Db: OutboxDb> OutboxAccess for PooledOutbox<Db> {
    async fn backlog(&self, cap: u32) -> Result<OutboxBacklog, OutboxError> {
        self.outbox.backlog(cap).await
    }

    async fn list(&self, status: OutboxStatus, after: i64, most: u32) -> Result<Vec<OutboxEntry>, OutboxError> {
        self.outbox.list(status, after, most).await
    }

    async fn inspect(&self, id: &str) -> Result<Option<(OutboxRecord, Option<OutboundMessage>)>, OutboxError> {
        self.outbox.inspect(id).await
    }

    async fn audit(&self, id: &str) -> Result<Vec<AuditEntry>, OutboxError> {
        self.outbox.audit(id).await
    }

    async fn change(&self, change: OutboxChange, id: &str, by: &str, reason: &str) -> Result<(), OutboxError> {
        let mut transaction = self.pool.begin().await?;
        match change {
            OutboxChange::Resend => self.outbox.resend(&mut transaction, id, by, reason).await?,
            OutboxChange::Void => self.outbox.void(&mut transaction, id, by, reason).await?,
        }
        Ok(transaction.commit().await?)
    }

    async fn purge(&self, age: Duration, most: u32) -> Result<u64, OutboxError> {
        self.outbox.purge(age, most).await
    }
}
