//! The databases of the plays that write rows and messages in one transaction.
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::delay::DelayDb;
use idempotent::outbox::OutboxDb;
use idempotent::{MySqlStore, PostgresStore, SqliteStore, Store, StoreError};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{MariaDbServer, PostgresServer};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{MySql, Pool, Postgres, Sqlite, Transaction};

use crate::server::Server;

/// The kind of the database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SqlStore {
    /// A server, which is killed, too.
    Postgres,
    /// A file, which all processes write.
    Sqlite,
    /// A server, which is killed, too.
    MariaDb,
}

impl SqlStore {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::Sqlite, Self::MariaDb];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
            Self::MariaDb => "mariadb",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|store| store.name() == name)
    }

    /// Returns the kind of a URL for processes.
    pub(super) fn of(url: &str) -> Self {
        match url.split_once(':') {
            Some(("sqlite", _)) => Self::Sqlite,
            Some(("mysql", _)) => Self::MariaDb,
            _ => Self::Postgres,
        }
    }
}

/// Evaluates an expression with the database type of a kind.
macro_rules! on_database {
    ($kind:expr, $db:ident => $call:expr) => {
        match $kind {
            $crate::delivery::SqlStore::Postgres => {
                type $db = sqlx::Postgres;
                $call
            }
            $crate::delivery::SqlStore::Sqlite => {
                type $db = sqlx::Sqlite;
                $call
            }
            $crate::delivery::SqlStore::MariaDb => {
                type $db = sqlx::MySql;
                $call
            }
        }
    };
}
pub(super) use on_database;

/// A running database.
pub(super) struct Site {
    pub(super) url: String,
    /// The URL through the proxy.
    pub(super) by_proxy: String,
    /// The server and its proxy, which can be killed.
    pub(super) server: Option<(Arc<dyn Server>, Proxy)>,
}

/// A database of a play.
pub(super) trait Database: OutboxDb + DelayDb {
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

    /// Begins a transaction that will write.
    fn begin(pool: &Pool<Self>) -> impl Future<Output = sqlx::Result<Transaction<'static, Self>>> + Send;
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
        PostgresStore::on_pool(pool.clone()).create(create).connect().await
    }

    async fn begin(pool: &Pool<Self>) -> sqlx::Result<Transaction<'static, Self>> {
        pool.begin().await
    }
}

impl Database for MySql {
    type Store = MySqlStore;

    async fn start(_: &Path) -> anyhow::Result<Site> {
        let server = tokio::task::spawn_blocking(MariaDbServer::start).await.context("MariaDB does not start")?;
        let proxy = Proxy::start(&server.address()).await;
        let url = server.url();
        let by_proxy = url.replace(&server.address(), &proxy.address());
        Ok(Site { url, by_proxy, server: Some((Arc::new(server), proxy)) })
    }

    fn pool(url: &str) -> anyhow::Result<Pool<Self>> {
        let options = MySqlPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(3));
        Ok(options.test_before_acquire(false).connect_lazy(url)?)
    }

    async fn store(pool: &Pool<Self>, _: &str, create: bool) -> Result<MySqlStore, StoreError> {
        MySqlStore::on_pool(pool.clone()).create(create).connect().await
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
        let url = format!("sqlite:{}", folder.join("play.db").display());
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
