//! The databases of the plays that write rows and messages in one transaction.
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use idempotent::delay::DelayDb;
use idempotent::outbox::OutboxDb;
use idempotent::{MySqlStore, PostgresStore, SqliteStore, Store, StoreError};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{MariaDbServer, PostgresServer};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{MySql, Pool, Postgres, QueryBuilder, Sqlite, Transaction};

use crate::named::named;
use crate::server::{self, Server};

named! {
    /// The kind of the database.
    pub enum SqlStore {
        /// A server, which is killed, too.
        Postgres = "postgres",
        /// A file, which all processes write.
        Sqlite = "sqlite",
        /// A server, which is killed, too.
        MariaDb = "mariadb",
    }
}

impl SqlStore {
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

    /// Writes an effect into the table [`EFFECTS`].
    fn effect(connection: &mut Self::Connection, id: &str) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Returns the ids of all effects.
    fn effects(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<Vec<String>>> + Send;
}

/// The statement that creates the table of the effects.
pub(super) const EFFECTS: &str = "CREATE TABLE effects (id varchar(40) NOT NULL)";

macro_rules! effects {
    ($db:ty) => {
        async fn effect(connection: &mut Self::Connection, id: &str) -> sqlx::Result<()> {
            let mut insert = QueryBuilder::<$db>::new("INSERT INTO effects (id) VALUES (");
            insert.push_bind(id).push(")");
            insert.build().execute(connection).await.map(drop)
        }

        async fn effects(connection: &mut Self::Connection) -> sqlx::Result<Vec<String>> {
            sqlx::query_scalar("SELECT id FROM effects").fetch_all(connection).await
        }
    };
}

macro_rules! server_databases {
    ($($db:ty, $server:ty, $store:ty, $options:ty;)+) => {$(
        impl Database for $db {
            type Store = $store;

            async fn start(_: &Path) -> anyhow::Result<Site> {
                let (server, proxy) = server::start(<$server>::start).await?;
                let url = server.url();
                let by_proxy = url.replace(&server.address(), &proxy.address());
                Ok(Site { url, by_proxy, server: Some((Arc::new(server), proxy)) })
            }

            fn pool(url: &str) -> anyhow::Result<Pool<Self>> {
                let options = <$options>::new().max_connections(6).acquire_timeout(Duration::from_secs(3));
                Ok(options.test_before_acquire(false).connect_lazy(url)?)
            }

            async fn store(pool: &Pool<Self>, _: &str, create: bool) -> Result<Self::Store, StoreError> {
                <$store>::on_pool(pool.clone()).create(create).connect().await
            }

            async fn begin(pool: &Pool<Self>) -> sqlx::Result<Transaction<'static, Self>> {
                pool.begin().await
            }

            effects!($db);
        }
    )+};
}
server_databases! {
    Postgres, PostgresServer, PostgresStore, PgPoolOptions;
    MySql, MariaDbServer, MySqlStore, MySqlPoolOptions;
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

    effects!(Self);
}
