//! One server for all tests of this binary, and a table for each: the same for every server but for what its own `place`
//! names.
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotent_core::Key;
use idempotent_testkit::{Damage, DamageInjector};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Executor, Pool, Row};

use super::{
    ADMIN, Builder, Connection, Db, LOCK, OTHER_LAYOUT, PARAMETER, ROW_TEXT, Server, Store, UNLOCK, WAITING, creating,
    sql,
};

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// The shared server. Tests that stop it or cut connections start one of their own.
pub(crate) fn server() -> &'static Server {
    &SERVER
}

/// Ends what [`Place::lock_whole_table`] began.
pub(crate) async fn unlock(connection: &mut Connection) {
    connection.execute(UNLOCK).await.unwrap();
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
    pub(crate) fn builder(&self) -> Builder {
        let patience = Duration::from_secs(60);
        creating(Store::builder(&self.url).table(&self.table).connections(4).timeout(patience))
    }

    pub(crate) async fn open(&self) -> Store {
        self.builder().connect().await.unwrap()
    }

    /// Opens a separate connection.
    pub(crate) fn other(&self) -> Pool<Db> {
        PoolOptions::new().max_connections(1).connect_lazy(&self.url).unwrap()
    }

    /// The same server and database, by another user.
    pub(crate) fn url_by(&self, user: &str) -> String {
        self.url.replace(&format!("{ADMIN}@"), &format!("{user}@"))
    }

    /// Locks the table against all statements.
    pub(crate) async fn lock_whole_table(&self, connection: &mut Connection) {
        let lock = LOCK.replace("TABLE_NAME", &self.table);
        sqlx::raw_sql(AssertSqlSafe(lock)).execute(connection).await.unwrap();
    }

    /// Gives the table another layout than ours.
    pub(crate) fn refuse_claims(&self) {
        sql(&format!("ALTER TABLE {} {OTHER_LAYOUT}", self.table));
    }

    /// Returns whether a statement with this text waits for another transaction.
    pub(crate) fn waits(&self, name: &str) -> bool {
        sql(&format!("{WAITING} LIKE '%{name}%'")) != "0"
    }

    /// Damages rows without the store's knowledge.
    pub(crate) fn rows(&self) -> Rows {
        Rows { pool: self.other(), table: self.table.clone() }
    }
}

/// Returns the assignment that damages a record, or `None` if the type of the column prevents this damage.
fn change(damage: Damage) -> Option<&'static str> {
    match damage {
        Damage::CutOff => Some("owner = substr(owner, 1, 3)"),
        Damage::Noise => Some("attempt = 1099511627776"),
        Damage::NewerVersion => Some("v = 999"),
        Damage::NoOwner => Some("owner = NULL"),
        Damage::BadFencing => Some("fencing = -5"),
        Damage::EndlessLease => Some("until_at = 253402300799000000, expires_at = 253402300799000000"),
        Damage::UnknownState => Some("state = 9"),
        _ => None,
    }
}

pub(crate) struct Rows {
    pool: Pool<Db>,
    table: String,
}

#[async_trait::async_trait]
impl DamageInjector for Rows {
    fn holds(&self, damage: Damage) -> bool {
        change(damage).is_some()
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let statement = format!("UPDATE {} SET {} WHERE id = {PARAMETER}", self.table, change(damage).unwrap());
        let update = sqlx::query(AssertSqlSafe(statement)).bind(key.hash().to_be_bytes().to_vec());
        assert_eq!(update.execute(&self.pool).await.unwrap().rows_affected(), 1);
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let statement = format!("SELECT {ROW_TEXT} FROM {} AS r WHERE id = {PARAMETER}", self.table);
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
