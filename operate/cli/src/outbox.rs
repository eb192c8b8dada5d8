//! The outbox that a command works on.
use idempotent::__private::url::masked;
use idempotent::outbox::{Outbox, OutboxDb};
use idempotent::sqlx::Pool;
use idempotent_operate::{OutboxAccess, PooledOutbox};

use crate::arguments::{GlobalOptions, OutboxOptions};
use crate::database::{self, DATABASES, Database};
use crate::target::read_url;

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
    Ok(Box::new(PooledOutbox::new(outbox, pool)))
}
