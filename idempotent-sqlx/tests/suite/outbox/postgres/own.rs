//! What is particular to it.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotent_testkit::servers::PostgresServer;
use sqlx::Row;

pub(super) type Db = sqlx::Postgres;

static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// A pool of the caller's, a table's name, and what has to live as long.
pub(super) async fn place() -> (sqlx::PgPool, String, ()) {
    let table = format!("outbox_{}", TABLES.fetch_add(1, Ordering::SeqCst));
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(8);
    (pool.connect(&SERVER.url()).await.unwrap(), table, ())
}

/// Whether one statement can settle many.
pub(super) const SETTLES_MANY: bool = true;
pub(super) const BEGIN: &str = "BEGIN";
/// Fills a table with confirmed stubs.
pub(super) const FILL: &str = "INSERT INTO outbox (id,topic,headers,body,digest,status,sends,created_at,sent_at,settled_at) \
    SELECT decode(md5(n::text),'hex'),'t','','',decode(repeat('00',32),'hex'),1,1,1,2,3 FROM generate_series(1,ROWS) n";
/// And the log and what people have noted.
pub(super) const FILL_BESIDE: [&str; 2] = [
    "INSERT INTO outbox_log (kind,id,run,place,logged_at) SELECT 1,decode(md5(n::text),'hex'),'',NULL,1 FROM generate_series(1,ROWS) n",
    "INSERT INTO outbox_audit (id,done_by,action,reason,done_at) SELECT decode(md5(n::text),'hex'),'a','a','a',1 FROM generate_series(1,ROWS) n",
];
pub(super) const ANALYSE: &str = "ANALYZE outbox";

/// Of the plan of a statement: what it reads, and by which index.
pub(super) async fn explain(pool: &sqlx::PgPool, sql: &str) -> String {
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("EXPLAIN {sql}"))).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// What it reads from one end to the other.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    plan.lines().filter(|line| line.contains("Seq Scan on outbox")).collect()
}

pub(super) const HEX: &str = "decode('DIGITS','hex')";
