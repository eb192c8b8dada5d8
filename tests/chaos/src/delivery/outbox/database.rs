//! The database of the outbox, with the statements of writers, consumers and the judge.
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::outbox::Outbox;
use idempotent::{PostgresStore, SqliteStore, Store, StoreError};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::PostgresServer;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Pool, Postgres, Sqlite, Transaction};
use tokio::time::sleep;

use super::UNWANTED;
use super::statements::Statements;
use crate::server::Server;

/// The kind of the database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum OutboxStore {
    /// A server, which is killed, too.
    Postgres,
    /// A file, which all processes write.
    Sqlite,
}

impl OutboxStore {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Postgres, Self::Sqlite];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|store| store.name() == name)
    }

    /// Returns the kind of a URL for processes.
    pub(super) fn of(url: &str) -> Self {
        if url.starts_with("sqlite") { Self::Sqlite } else { Self::Postgres }
    }
}

/// One to be played on.
pub(super) struct Site {
    pub(super) url: String,
    /// The URL through the proxy.
    pub(super) by_proxy: String,
    /// The server and its proxy, which can be killed.
    pub(super) server: Option<(Arc<dyn Server>, Proxy)>,
}

/// A database for the outbox of a play.
pub(super) trait Database: Statements {
    type Store: Store;

    fn start(folder: &Path) -> impl Future<Output = anyhow::Result<Site>>;

    /// Creates a pool that connects on first use.
    fn pool(url: &str) -> anyhow::Result<Pool<Self>>;

    /// Opens the store of records; `create` also creates its tables.
    fn store(
        pool: &Pool<Self>,
        url: &str,
        create: bool,
    ) -> impl Future<Output = Result<Self::Store, StoreError>> + Send;

    /// One that will write.
    fn begin(pool: &Pool<Self>) -> impl Future<Output = sqlx::Result<Transaction<'static, Self>>> + Send;
}

/// The open stores and outboxes of a database.
pub(super) struct Home<Db: Database> {
    pub(super) pool: Pool<Db>,
    pub(super) outbox: Outbox<Db>,
    /// The outbox of messages without a receiver.
    pub(super) unwanted: Outbox<Db>,
    pub(super) store: Db::Store,
}

impl<Db: Database> Home<Db> {
    /// Opens the database and creates all tables.
    pub(super) async fn make(url: &str) -> anyhow::Result<Self> {
        let home = Self::open(url, true).await?;
        let mut tx = Db::begin(&home.pool).await?;
        Db::make(&mut tx).await?;
        tx.commit().await?;
        Ok(home)
    }

    /// Once it can be reached.
    pub(super) async fn reach(url: &str) -> anyhow::Result<Self> {
        loop {
            match Self::open(url, false).await {
                Ok(home) => return Ok(home),
                Err(error) => eprintln!("no database: {error:#}"),
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn open(url: &str, create: bool) -> anyhow::Result<Self> {
        let pool = Db::pool(url)?;
        let store = Db::store(&pool, url, create).await?;
        let outbox = Outbox::builder(pool.clone()).create(create).open().await?;
        let unwanted = Outbox::builder(pool.clone()).table(UNWANTED).create(create).open().await?;
        Ok(Self { pool, outbox, unwanted, store })
    }
}

impl Database for Postgres {
    type Store = PostgresStore;

    async fn start(_: &Path) -> anyhow::Result<Site> {
        let server = tokio::task::spawn_blocking(PostgresServer::start).await.context("PostgreSQL does not start")?;
        let proxy = Proxy::start(&server.address()).await;
        let url = server.url();
        let by_proxy = url.replace(&server.address(), &proxy.address());
        Ok(Site { url, by_proxy, server: Some((Arc::new(server), proxy)) })
    }

    fn pool(url: &str) -> anyhow::Result<Pool<Self>> {
        let options = PgPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(3));
        Ok(options.test_before_acquire(false).connect_lazy(url)?)
    }

    async fn store(pool: &Pool<Self>, _: &str, create: bool) -> Result<PostgresStore, StoreError> {
        PostgresStore::on_pool(pool.clone()).create(create).open().await
    }

    async fn begin(pool: &Pool<Self>) -> sqlx::Result<Transaction<'static, Self>> {
        pool.begin().await
    }
}

/// A stopped process may be in the middle of a transaction.
const BUSY: Duration = Duration::from_secs(10);

impl Database for Sqlite {
    type Store = SqliteStore;

    async fn start(folder: &Path) -> anyhow::Result<Site> {
        let url = format!("sqlite:{}", folder.join("outbox.db").display());
        Ok(Site { by_proxy: url.clone(), url, server: None })
    }

    fn pool(url: &str) -> anyhow::Result<Pool<Self>> {
        let options = url.parse::<SqliteConnectOptions>()?.busy_timeout(BUSY).create_if_missing(true);
        Ok(SqlitePoolOptions::new().max_connections(3).connect_lazy_with(options))
    }

    async fn store(_: &Pool<Self>, url: &str, _: bool) -> Result<SqliteStore, StoreError> {
        SqliteStore::open(url).await
    }

    async fn begin(pool: &Pool<Self>) -> sqlx::Result<Transaction<'static, Self>> {
        // A transaction that begins with a read could not write after another writer.
        pool.begin_with("BEGIN IMMEDIATE").await
    }
}
