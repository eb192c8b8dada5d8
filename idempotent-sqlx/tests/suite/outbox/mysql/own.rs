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

/// Whether one statement can settle many.
pub(super) const SETTLES_MANY: bool = false;
pub(super) const BEGIN: &str = "BEGIN";
/// Fills a table with confirmed stubs.
pub(super) const FILL: &str = "INSERT INTO outbox (id,topic,headers,body,digest,status,sends,created_at,sent_at,settled_at) \
    SELECT md5(seq),'t','','',unhex(repeat('00',32)),1,1,1,2,3 FROM seq_1_to_ROWS";
/// And the log and what people have noted.
pub(super) const FILL_BESIDE: [&str; 2] = [
    "INSERT INTO outbox_log (kind,id,run,place,logged_at) SELECT 1,md5(seq),'',NULL,1 FROM seq_1_to_ROWS",
    "INSERT INTO outbox_audit (id,done_by,action,reason,done_at) SELECT md5(seq),'a','a','a',1 FROM seq_1_to_ROWS",
];
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

/// What it reads from one end to the other.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    let whole = |line: &&str| line.ends_with("(ALL)") || line.ends_with("(index)");
    // But the values of the statement itself, which are a table made of it, or none.
    plan.lines().filter(|line| whole(line) && !line.starts_with('<') && !line.starts_with(' ')).collect()
}

pub(super) const HEX: &str = "unhex('DIGITS')";
