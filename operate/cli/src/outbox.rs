//! The outbox that a command works on.
use async_trait::async_trait;
use idempotent::__private::url::masked;
use idempotent::mq::OutboundMessage;
use idempotent::outbox::{
    AuditEntry, Outbox, OutboxBacklog, OutboxDb, OutboxEntry, OutboxError, OutboxRecord, OutboxStatus,
};
use idempotent::sqlx::Pool;
use std::time::Duration;

use crate::arguments::{GlobalOptions, OutboxOptions};
use crate::database::{self, DATABASES, Database};
use crate::target::read_url;

/// A change of one message by an operator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OutboxChange {
    Resend,
    Void,
}

/// An outbox in any database.
#[async_trait]
pub(crate) trait OutboxAccess: Send + Sync {
    async fn backlog(&self, cap: u32) -> Result<OutboxBacklog, OutboxError>;
    async fn list(&self, status: OutboxStatus, after: i64, most: u32) -> Result<Vec<OutboxEntry>, OutboxError>;
    async fn inspect(&self, id: &str) -> Result<Option<(OutboxRecord, Option<OutboundMessage>)>, OutboxError>;
    async fn audit(&self, id: &str) -> Result<Vec<AuditEntry>, OutboxError>;
    /// Changes a message and writes the outbox's audit entry, in one transaction.
    async fn change(&self, change: OutboxChange, id: &str, by: &str, reason: &str) -> Result<(), OutboxError>;
    async fn purge(&self, age: Duration, most: u32) -> Result<u64, OutboxError>;
}

/// An open outbox.
pub(crate) struct OutboxTarget {
    pub(crate) outbox: Box<dyn OutboxAccess>,
    /// The name of the table and the URL without passwords.
    pub(crate) name: String,
}

/// Opens the outbox of the options. Creates nothing.
pub(crate) async fn open(global: &GlobalOptions, options: &OutboxOptions) -> anyhow::Result<OutboxTarget> {
    let missing = format!("no outbox: set IDEMPOTENT_OUTBOX, or pass --outbox URL: {DATABASES}");
    let url = read_url(options.outbox.as_deref().or(global.store.as_deref()), &missing)?;
    database::check_table(&options.name)?;
    let outbox = match database::connect(&url).await? {
        #[cfg(feature = "mysql")]
        Database::MySql(pool) => access(pool, &options.name).await?,
        #[cfg(feature = "postgres")]
        Database::Postgres(pool) => access(pool, &options.name).await?,
        #[cfg(feature = "sqlite")]
        Database::Sqlite(pool) => access(pool, &options.name).await?,
    };
    Ok(OutboxTarget { outbox, name: format!("{} on {}", options.name, masked(&url)) })
}

async fn access<Db: OutboxDb>(pool: Pool<Db>, table: &str) -> anyhow::Result<Box<dyn OutboxAccess>> {
    let outbox = Outbox::builder(pool.clone()).table(table).open().await?;
    Ok(Box::new(OpenOutbox { outbox, pool }))
}

struct OpenOutbox<Db: OutboxDb> {
    outbox: Outbox<Db>,
    pool: Pool<Db>,
}

#[async_trait]
impl<Db: OutboxDb> OutboxAccess for OpenOutbox<Db> {
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
