//! The databases of the inbox, and what differs between them.
use idempotent::{MySqlStore, PostgresStore, Store, StoreError};
use idempotent_harness::servers::{MariaDbServer, PgBouncer, PostgresServer};
use sqlx::{Connection, Database, MySql, Pool, Postgres};

use crate::named::named;

named! {
    /// A database.
    pub enum InboxDatabase {
        /// PostgreSQL.
        Postgres = "postgres",
        /// PostgreSQL behind PgBouncer.
        PgBouncer = "postgres-pgbouncer",
        /// MariaDB, where a change of the schema commits.
        MariaDb = "inbox-mariadb",
    }
}

/// A running server, and the pooler between it and the workers.
pub(super) enum Server {
    Postgres(PostgresServer, Option<PgBouncer>),
    MariaDb(MariaDbServer),
}

impl Server {
    pub(super) fn start(database: InboxDatabase) -> Self {
        match database {
            InboxDatabase::Postgres => Self::Postgres(PostgresServer::start(), None),
            InboxDatabase::PgBouncer => {
                let server = PostgresServer::start();
                let pooler = PgBouncer::start(&server, &pooler_settings());
                Self::Postgres(server, Some(pooler))
            }
            InboxDatabase::MariaDb => Self::MariaDb(MariaDbServer::start_durable()),
        }
    }

    /// Returns the URL for the workers.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Postgres(_, Some(pooler)) => pooler.url_of("postgres"),
            Self::Postgres(server, None) => server.url(),
            Self::MariaDb(server) => server.url(),
        }
    }

    /// Returns the address in this URL.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Postgres(_, Some(pooler)) => pooler.address(),
            Self::Postgres(server, None) => server.address(),
            Self::MariaDb(server) => server.address(),
        }
    }

    pub(super) fn crash(&self) {
        match self {
            Self::Postgres(server, _) => {
                server.kill();
                server.restart();
            }
            Self::MariaDb(server) => {
                server.kill();
                server.restart();
            }
        }
    }

    /// Creates the tables.
    pub(super) async fn prepare(&self) -> anyhow::Result<()> {
        let tables = "CREATE TABLE effects (message bigint NOT NULL, part int NOT NULL); CREATE TABLE staging (id int)";
        match self {
            Self::Postgres(server, _) => {
                let mut store = PostgresStore::builder(server.url()).create(true);
                if let Ok(number) = std::env::var("IDEMPOTENT_POSTGRES_PARTITIONS") {
                    store = store.partitions(number.parse()?);
                }
                store.connect().await?;
                server.psql("postgres", tables);
            }
            Self::MariaDb(server) => {
                MySqlStore::builder(server.url()).create(true).connect().await?;
                sqlx::raw_sql(tables)
                    .execute(&mut <MySql as Database>::Connection::connect(&server.url()).await?)
                    .await?;
            }
        }
        Ok(())
    }

    /// Returns the keys with the numbers of rows of both parts, and the number of consumed records.
    pub(super) async fn rows(&self) -> anyhow::Result<(Counts, i64)> {
        match self {
            Self::Postgres(server, _) => Ok(Postgres::rows(&server.url()).await?),
            Self::MariaDb(server) => Ok(MySql::rows(&server.url()).await?),
        }
    }
}

/// Returns the settings of the pooler: by transaction if this version keeps prepared statements there, else by session. After a
/// restart of the server, the pooler connects within a second.
fn pooler_settings() -> String {
    let mode = if PgBouncer::keeps_prepared_statements() { "transaction" } else { "session" };
    format!(
        "pool_mode = {mode}\ndefault_pool_size = 50\nserver_login_retry = 1\n\
         ignore_startup_parameters = extra_float_digits\n"
    )
}

/// For each message, the message and the numbers of its first and second effects.
type Counts = Vec<(i64, i64, i64)>;

/// The operations of a worker on a database.
pub(super) trait Engine: Database {
    type Store: Store + Clone + 'static;

    /// Statements that end the transaction in which they are executed.
    const ENDING: &'static [&'static str];

    fn open(pool: Pool<Self>) -> impl Future<Output = Result<Self::Store, StoreError>> + Send;

    fn insert(
        connection: &mut Self::Connection,
        key: i64,
        part: i32,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn execute(
        connection: &mut Self::Connection,
        text: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn rows(url: &str) -> impl Future<Output = Result<(Counts, i64), sqlx::Error>> + Send;
}

macro_rules! engine {
    ($db:ty, $store:ty, $insert:literal, $ending:expr) => {
        impl Engine for $db {
            type Store = $store;

            const ENDING: &'static [&'static str] = $ending;

            async fn open(pool: Pool<Self>) -> Result<$store, StoreError> {
                <$store>::on_pool(pool).connect().await
            }

            async fn insert(connection: &mut Self::Connection, key: i64, part: i32) -> Result<(), sqlx::Error> {
                sqlx::query($insert).bind(key).bind(part).execute(connection).await.map(drop)
            }

            async fn execute(connection: &mut Self::Connection, text: &'static str) -> Result<(), sqlx::Error> {
                sqlx::raw_sql(text).execute(connection).await.map(drop)
            }

            async fn rows(url: &str) -> Result<(Counts, i64), sqlx::Error> {
                let mut connection = <Self as Database>::Connection::connect(url).await?;
                let counts = "SELECT message, count(CASE WHEN part = 1 THEN 1 END), count(CASE WHEN part = 2 THEN 1 END) \
                              FROM effects GROUP BY message";
                let counts = sqlx::query_as(counts).fetch_all(&mut connection).await?;
                let consumed = "SELECT count(*) FROM idempotent_record WHERE state = 2";
                Ok((counts, sqlx::query_scalar(consumed).fetch_one(&mut connection).await?))
            }
        }
    };
}

engine!(
    Postgres,
    PostgresStore,
    "INSERT INTO effects(message, part) VALUES ($1, $2)",
    &["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"]
);
engine!(
    MySql,
    MySqlStore,
    "INSERT INTO effects(message, part) VALUES (?, ?)",
    &[
        "TRUNCATE TABLE staging",
        "CREATE TABLE IF NOT EXISTS staging (id int)",
        "ANALYZE TABLE staging",
        "START TRANSACTION",
        "COMMIT",
        "ROLLBACK",
        "LOCK TABLES staging WRITE",
    ]
);
