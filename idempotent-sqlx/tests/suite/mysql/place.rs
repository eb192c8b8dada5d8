//! One server for all tests of this binary, and a table for each.
#[path = "../server/damage.rs"]
mod damage;

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotent_core::{Key, StoreErrorKind};
use idempotent_sqlx::{MySqlStore, MySqlStoreBuilder};
use idempotent_testkit::servers::MariaDbServer;
use idempotent_testkit::{Damage, Plant};
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Executor, Row};

use self::damage::change;

pub(crate) type Db = sqlx::MySql;
pub(crate) type Server = MariaDbServer;
pub(crate) type Store = MySqlStore;

pub(crate) type Connection = MySqlConnection;

pub(crate) const NAME: &str = "MariaDB or MySQL";
pub(crate) const SCHEME: &str = "mysql";
/// How a byte is written.
pub(crate) const BYTE: &str = "x'00'";
pub(crate) const NO_TABLE: &str = "error 1146";
pub(crate) const NO_SCHEMA: (StoreErrorKind, &[&str]) = (StoreErrorKind::Denied, &["no such database", "error 1049"]);
pub(crate) const NO_DATABASE: &str = "error 1049";
pub(crate) const NO_USER: &str = "error 1045";

static SERVER: LazyLock<MariaDbServer> = LazyLock::new(MariaDbServer::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// The shared server. Tests that stop it or cut connections start one of their own.
pub(crate) fn server() -> &'static MariaDbServer {
    &SERVER
}

pub(crate) fn sql(text: &str) -> String {
    server().sql("test", text)
}

/// Ends what [`Place::lock_whole_table`] began.
pub(crate) async fn unlock(connection: &mut MySqlConnection) {
    connection.execute("UNLOCK TABLES").await.unwrap();
}

/// Claims and looks that this connection has sent so far.
pub(crate) async fn sent(connection: &mut MySqlConnection, _: &Place) -> (i64, i64) {
    let count = async |connection: &mut MySqlConnection, name: &str| -> i64 {
        let status = format!("SHOW SESSION STATUS LIKE '{name}'");
        let row = sqlx::raw_sql(AssertSqlSafe(status)).fetch_one(connection).await.unwrap();
        row.get::<String, _>(1).parse().unwrap()
    };
    let (claims, looks) = (count(connection, "Com_insert").await, count(connection, "Com_select").await);
    (claims, looks)
}

/// Stores of every kind of statements, with a table of its own for the second one.
pub(crate) fn builders(place: &Place) -> Vec<MySqlStoreBuilder> {
    vec![place.builder(), Place::new().builder().__as_on_mysql()]
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
    pub(crate) fn builder(&self) -> MySqlStoreBuilder {
        let patience = Duration::from_secs(60);
        MySqlStore::builder(&self.url).table(&self.table).connections(4).timeout(patience).create(true)
    }

    pub(crate) async fn open(&self) -> MySqlStore {
        self.builder().open().await.unwrap()
    }

    /// A connection of somebody else.
    pub(crate) fn other(&self) -> MySqlPool {
        MySqlPoolOptions::new().max_connections(1).connect_lazy(&self.url).unwrap()
    }

    /// The same server and database, by another user.
    pub(crate) fn url_by(&self, user: &str) -> String {
        self.url.replace("root@", &format!("{user}@"))
    }

    pub(crate) fn has(&self, table: &str) -> bool {
        !sql(&format!("SHOW TABLES LIKE '{table}'")).is_empty()
    }

    /// So that no statement gets at it.
    pub(crate) async fn lock_whole_table(&self, connection: &mut MySqlConnection) {
        let lock = format!("LOCK TABLES {} WRITE", self.table);
        sqlx::raw_sql(AssertSqlSafe(lock)).execute(connection).await.unwrap();
    }

    /// Gives the table another layout than ours.
    pub(crate) fn refuse_claims(&self) {
        sql(&format!("ALTER TABLE {} DROP COLUMN taken_over", self.table));
    }

    /// Says of each write what a server says whose disk is full, until told not to.
    pub(crate) fn fill_disk(&self, full: bool) {
        let table = &self.table;
        for verb in ["INSERT", "UPDATE"] {
            let name = format!("full_{verb}_{table}");
            sql(&match full {
                true => format!(
                    "CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW \
                     SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'no space'"
                ),
                false => format!("DROP TRIGGER {name}"),
            });
        }
    }

    /// Whether a statement that names this is under way: it waits for another's transaction. Not by `innodb_trx`, which is
    /// not read anew as long as it is asked often.
    pub(crate) fn waits(&self, name: &str) -> bool {
        let waiting = "SELECT count(*) FROM information_schema.processlist WHERE id <> connection_id() AND info LIKE";
        sql(&format!("{waiting} '%{name}%'")) != "0"
    }

    /// Damages rows behind the store's back.
    pub(crate) fn rows(&self) -> Rows {
        Rows { pool: self.other(), table: self.table.clone() }
    }
}

pub(crate) struct Rows {
    pool: MySqlPool,
    table: String,
}

#[async_trait::async_trait]
impl Plant for Rows {
    fn holds(&self, damage: Damage) -> bool {
        change(damage).is_some()
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let statement = format!("UPDATE {} SET {} WHERE id = ?", self.table, change(damage).unwrap());
        let update = sqlx::query(AssertSqlSafe(statement)).bind(key.hash().to_be_bytes().to_vec());
        assert_eq!(update.execute(&self.pool).await.unwrap().rows_affected(), 1);
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let columns = [
            "v",
            "name",
            "state",
            "owner",
            "fencing",
            "attempt",
            "until_at",
            "taken_over",
            "fingerprint",
            "expires_at",
            "first_seen",
            "updated_at",
            "value",
            "error",
            "display",
        ];
        let columns = columns.map(|column| format!("coalesce(hex({column}),'-')")).join(",");
        let statement = format!("SELECT concat_ws('|',{columns}) FROM {} WHERE id = ?", self.table);
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
