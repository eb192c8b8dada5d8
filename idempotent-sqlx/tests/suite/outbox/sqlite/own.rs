//! What is particular to it.
use sqlx::Row;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

pub(super) type Db = sqlx::Sqlite;

/// A pool of the caller's, a table's name, and what has to live as long.
pub(super) async fn place() -> (sqlx::SqlitePool, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(8).connect_with(options).await.unwrap();
    (pool, "outbox_own".to_owned(), folder)
}

/// Whether one statement can settle many.
pub(super) const SETTLES_MANY: bool = true;
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
/// Fills a table with confirmed stubs.
pub(super) const FILL: &str = "INSERT INTO outbox (id,topic,headers,body,digest,status,sends,created_at,sent_at,settled_at) \
    WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<ROWS) \
    SELECT CAST(n AS BLOB),x'74',x'',x'',zeroblob(32),1,1,1,2,3 FROM s";
/// And the log and what people have noted.
pub(super) const FILL_BESIDE: [&str; 2] = [
    "INSERT INTO outbox_log (kind,id,run,place,logged_at) \
     WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<ROWS) SELECT 1,CAST(n AS BLOB),x'',NULL,1 FROM s",
    "INSERT INTO outbox_audit (id,done_by,action,reason,done_at) \
     WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<ROWS) SELECT CAST(n AS BLOB),x'61',x'61',x'61',1 FROM s",
];
pub(super) const ANALYSE: &str = "ANALYZE outbox";

/// Of the plan of a statement: what it reads, and by which index.
pub(super) async fn explain(pool: &sqlx::SqlitePool, sql: &str) -> String {
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(3)).collect::<Vec<_>>().join("\n")
}

/// What it reads from one end to the other.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    // But the values of the statement itself.
    plan.lines().filter(|line| line.starts_with("SCAN") && *line != "SCAN v" && *line != "SCAN CONSTANT ROW").collect()
}

pub(super) const HEX: &str = "x'DIGITS'";
