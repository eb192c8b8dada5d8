//! What is particular to it.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotent_testkit::proxy::Proxy;
use idempotent_testkit::servers::MariaDbServer;
use sqlx::Row;

pub(super) type Db = sqlx::MySql;

static SERVER: LazyLock<MariaDbServer> = LazyLock::new(MariaDbServer::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// A pool of the caller's, a table's name, and what has to live as long.
pub(super) async fn place() -> (sqlx::MySqlPool, String, ()) {
    let table = format!("delay_{}", TABLES.fetch_add(1, Ordering::SeqCst));
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(8);
    (pool.connect(&SERVER.url()).await.unwrap(), table, ())
}

pub(super) const BEGIN: &str = "BEGIN";
/// Fills a table: half of it waits, half is dead.
pub(super) const FILL: &str = "INSERT INTO delay (id,live,headers,body,scheduled_at,due_at,dead_at) \
    SELECT md5(seq),CASE WHEN seq%2=0 THEN md5(seq) END,'','',1,\
    CASE WHEN seq%2=0 THEN FAR+seq END,CASE WHEN seq%2=1 THEN seq END FROM seq_1_to_ROWS";
pub(super) const ANALYSE: &str = "ANALYZE TABLE delay";

/// Of the plan of a statement: what it reads, and by which index.
pub(super) async fn explain(pool: &sqlx::MySqlPool, sql: &str) -> String {
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("EXPLAIN {sql}"))).fetch_all(pool).await.unwrap();
    let read = |row: &sqlx::mysql::MySqlRow| {
        let text = |at: &str| row.try_get::<Option<String>, _>(at).unwrap().unwrap_or_default();
        format!("{} by {} ({})", text("table"), text("key"), text("type"))
    };
    rows.iter().map(read).collect::<Vec<_>>().join("\n")
}

/// What a plan must say, one of these, and must not.
pub(super) const BY_INDEX: (&[&str], &[&str]) =
    (&["delay by by_due (range)"], &["delay by  (ALL)", "delay by by_due (index)"]);
pub(super) const HEX: &str = "unhex('DIGITS')";

/// A transaction of somebody else's.
pub(super) async fn beside(pool: &sqlx::MySqlPool) -> Option<sqlx::Transaction<'static, Db>> {
    Some(pool.begin().await.unwrap())
}

/// Connections that can be cut.
pub(super) struct Lines(Proxy);

impl Lines {
    pub(super) async fn new(_: &sqlx::MySqlPool) -> Self {
        Self(Proxy::start(&SERVER.address()).await)
    }

    pub(super) async fn pool(&self) -> sqlx::MySqlPool {
        let url = SERVER.url().replace(&SERVER.address(), &self.0.address());
        sqlx::mysql::MySqlPoolOptions::new().max_connections(4).connect(&url).await.unwrap()
    }

    pub(super) fn cut(&self) {
        self.0.cut_all();
    }
}

macro_rules! hold {
    ($table:expr) => {
        idempotent_testkit::broker_conformance!(delayed_work_keeps_the_laws, $table);
    };
}
pub(super) use hold;
