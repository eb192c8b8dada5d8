//! One server for all tests of this binary, and a table for each.
#[path = "../server/damage.rs"]
mod damage;

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotent_core::{Key, StoreErrorKind};
use idempotent_sqlx::{PostgresStore, PostgresStoreBuilder};
use idempotent_testkit::servers::PostgresServer;
use idempotent_testkit::{Damage, Plant};
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, Row};

use self::damage::change;

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Server = PostgresServer;
pub(crate) type Store = PostgresStore;

pub(crate) type Connection = PgConnection;

pub(crate) const NAME: &str = "PostgreSQL";
pub(crate) const SCHEME: &str = "postgres";
/// How a byte is written.
pub(crate) const BYTE: &str = "'\\x00'";
pub(crate) const NO_TABLE: &str = "42P01";
pub(crate) const NO_SCHEMA: (StoreErrorKind, &[&str]) = (StoreErrorKind::Schema, &["schema", "3F000"]);
pub(crate) const NO_DATABASE: &str = "3D000";
pub(crate) const NO_USER: &str = "28000";

static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// The shared server. Tests that stop it or cut connections start one of their own.
pub(crate) fn server() -> &'static PostgresServer {
    &SERVER
}

pub(crate) fn sql(text: &str) -> String {
    server().psql("postgres", text)
}

/// Ends what [`Place::lock_whole_table`] began.
pub(crate) async fn unlock(connection: &mut PgConnection) {
    connection.execute("ROLLBACK").await.unwrap();
}

/// Claims and looks that this connection has sent so far.
pub(crate) async fn sent(connection: &mut PgConnection, place: &Place) -> (i64, i64) {
    let count = |like: &str| {
        format!(
            "(SELECT coalesce(sum(generic_plans + custom_plans), 0)::bigint FROM pg_prepared_statements \
             WHERE statement LIKE '{like}' AND statement LIKE '%{}%')",
            place.table
        )
    };
    let both = format!("SELECT {}, {}", count("WITH cur AS%"), count("SELECT id,v,%"));
    let row = sqlx::raw_sql(AssertSqlSafe(both)).fetch_one(connection).await.unwrap();
    (row.get(0), row.get(1))
}

/// Stores of every kind of statements.
pub(crate) fn builders(place: &Place) -> Vec<PostgresStoreBuilder> {
    vec![place.builder()]
}

/// A table of a test's own.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) table: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let table = format!("records_{}", TABLES.fetch_add(1, Ordering::SeqCst));
        Self { url: server().url(), table }
    }

    /// Patient: the disk of a busy machine may stand still for seconds. Tests about silence set their own.
    pub(crate) fn builder(&self) -> PostgresStoreBuilder {
        let patience = Duration::from_secs(60);
        PostgresStore::builder(&self.url).table(&self.table).connections(4).timeout(patience).create(true)
    }

    pub(crate) async fn open(&self) -> PostgresStore {
        self.builder().open().await.unwrap()
    }

    /// A connection of somebody else.
    pub(crate) fn other(&self) -> PgPool {
        PgPoolOptions::new().max_connections(1).connect_lazy(&self.url).unwrap()
    }

    /// Goes into its locks and its channel.
    pub(crate) fn salt(&self) -> u64 {
        let digest = Sha256::digest(format!("\"public\".\"{}\"", self.table));
        u64::from_be_bytes(digest[..8].try_into().unwrap())
    }

    /// The same server and database, by another user.
    pub(crate) fn url_by(&self, user: &str) -> String {
        self.url.replace("postgres@", &format!("{user}@"))
    }

    pub(crate) fn has(&self, table: &str) -> bool {
        sql(&format!("SELECT to_regclass('{table}') IS NOT NULL")) == "t"
    }

    /// So that no statement gets at it.
    pub(crate) async fn lock_whole_table(&self, connection: &mut PgConnection) {
        let lock = format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", self.table);
        sqlx::raw_sql(AssertSqlSafe(lock)).execute(connection).await.unwrap();
    }

    /// Gives the table another layout than ours.
    pub(crate) fn refuse_claims(&self) {
        sql(&format!("ALTER TABLE {} ALTER taken_over SET NOT NULL", self.table));
    }

    /// Says of each write what a server says whose disk is full, until told not to.
    pub(crate) fn fill_disk(&self, full: bool) {
        let table = &self.table;
        sql(&match full {
            true => format!(
                "CREATE FUNCTION full_{table}() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN RAISE EXCEPTION ''no space'' USING ERRCODE = ''53100''; END'; \
                 CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION full_{table}()"
            ),
            false => format!("DROP TRIGGER no_room ON {table}"),
        });
    }

    /// Whether somebody's statement that names this waits for another's transaction.
    pub(crate) fn waits(&self, name: &str) -> bool {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE";
        sql(&format!("{waiting} '%{name}%'")) != "0"
    }

    /// Damages rows behind the store's back.
    pub(crate) fn rows(&self) -> Rows {
        Rows { pool: self.other(), table: self.table.clone() }
    }
}

pub(crate) struct Rows {
    pool: PgPool,
    table: String,
}

#[async_trait::async_trait]
impl Plant for Rows {
    fn holds(&self, damage: Damage) -> bool {
        change(damage).is_some()
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let statement = format!("UPDATE {} SET {} WHERE id = $1", self.table, change(damage).unwrap());
        let update = sqlx::query(AssertSqlSafe(statement)).bind(key.hash().to_be_bytes().to_vec());
        assert_eq!(update.execute(&self.pool).await.unwrap().rows_affected(), 1);
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let statement = format!("SELECT r::text FROM {} AS r WHERE id = $1", self.table);
        let row = sqlx::query(AssertSqlSafe(statement)).bind(key.hash().to_be_bytes().to_vec());
        let row = row.fetch_optional(&self.pool).await.unwrap();
        row.map(|row| row.get::<String, _>(0).into_bytes()).unwrap_or_default()
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rows")
    }
}
