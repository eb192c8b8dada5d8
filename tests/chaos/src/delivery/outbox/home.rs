//! The open stores and outboxes of a process.
use idempotent::outbox::Outbox;
use sqlx::Pool;

use super::UNWANTED;
use super::statements::Statements;
use crate::deadline::connected;

/// The open stores and outboxes of a database.
pub(super) struct Home<Db: Statements> {
    pub(super) pool: Pool<Db>,
    pub(super) outbox: Outbox<Db>,
    /// The outbox of messages without a receiver.
    pub(super) unwanted: Outbox<Db>,
    pub(super) store: Db::Store,
}

impl<Db: Statements> Home<Db> {
    /// Opens the database and creates all tables.
    pub(super) async fn make(url: &str) -> anyhow::Result<Self> {
        let home = Self::open(url, true).await?;
        let mut tx = Db::begin(&home.pool).await?;
        Db::make(&mut tx).await?;
        tx.commit().await?;
        Ok(home)
    }

    /// Opens the database once it can be reached.
    pub(super) async fn reach(url: &str) -> Self {
        connected(|| Self::open(url, false)).await
    }

    async fn open(url: &str, create: bool) -> anyhow::Result<Self> {
        let pool = Db::pool(url)?;
        let store = Db::store(&pool, url, create).await?;
        let outbox = Outbox::builder(pool.clone()).create(create).open().await?;
        let unwanted = Outbox::builder(pool.clone()).table(UNWANTED).create(create).open().await?;
        Ok(Self { pool, outbox, unwanted, store })
    }
}
