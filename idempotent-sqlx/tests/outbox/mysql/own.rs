//! What is particular to it.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotent_testkit::servers::MariaDbServer;
use sqlx::Row;

pub(super) type Db = sqlx::MySql;

static SERVER: LazyLock<MariaDbServer> = LazyLock::new(MariaDbServer::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// A pool of the caller's, a table's name, and what has to live as long.
pub(super) async fn place() -> (sqlx::MySqlPool, String, ()) {
    let table = format!("outbox_{}", TABLES.fetch_add(1, Ordering::SeqCst));
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(8);
    (pool.connect(&SERVER.url()).await.unwrap(), table, ())
}

pub(super) const BEGIN: &str = "BEGIN";
/// Fills a table with confirmed stubs.
pub(super) const FILL: &str = "INSERT INTO outbox (id,topic,headers,body,digest,status,sends,created_at,sent_at,settled_at) \
    SELECT md5(seq),'t','','',unhex(repeat('00',32)),1,1,1,2,3 FROM seq_1_to_ROWS";
pub(super) const ANALYSE: &str = "ANALYZE TABLE outbox";

/// Of the plan of a statement: what it reads, and by which index.
pub(super) async fn explain(pool: &sqlx::MySqlPool, sql: &str) -> String {
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("EXPLAIN {sql}"))).fetch_all(pool).await.unwrap();
    let read = |row: &sqlx::mysql::MySqlRow| {
        let text = |at: &str| row.try_get::<Option<String>, _>(at).unwrap().unwrap_or_default();
        format!("{} by {} ({})", text("table"), text("key"), text("type"))
    };
    rows.iter().map(read).collect::<Vec<_>>().join("\n")
}

/// What a plan must say, and must not.
pub(super) const BY_INDEX: (&[&str], &[&str]) =
    (&["t by by_due (range)", "p by by_holds (ref)"], &["(ALL)", "(index)"]);
pub(super) const HEX: &str = "unhex('DIGITS')";
