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
    (pool, "delay_own".to_owned(), folder)
}

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
/// Fills a table: half of it waits, half is dead.
pub(super) const FILL: &str = "INSERT INTO delay (id,live,headers,body,scheduled_at,due_at,dead_at) \
    WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<ROWS) \
    SELECT CAST(n AS BLOB),CASE WHEN n%2=0 THEN CAST(n AS BLOB) END,x'',x'',1,\
    CASE WHEN n%2=0 THEN FAR+n END,CASE WHEN n%2=1 THEN n END FROM s";
pub(super) const ANALYSE: &str = "ANALYZE delay";

/// Of the plan of a statement: what it reads, and by which index.
pub(super) async fn explain(pool: &sqlx::SqlitePool, sql: &str) -> String {
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(3)).collect::<Vec<_>>().join("\n")
}

/// What a plan must say, one of these, and must not.
pub(super) const BY_INDEX: (&[&str], &[&str]) = (&["_due (due_at<?)"], &["SCAN delay"]);
pub(super) const HEX: &str = "x'DIGITS'";

/// There is one writer at a time.
pub(super) async fn beside(_: &sqlx::SqlitePool) -> Option<sqlx::Transaction<'static, Db>> {
    None
}

/// Connections that can be cut: there are none to a file.
pub(super) struct Lines(sqlx::SqlitePool);

impl Lines {
    pub(super) async fn new(pool: &sqlx::SqlitePool) -> Self {
        Self(pool.clone())
    }

    pub(super) async fn pool(&self) -> sqlx::SqlitePool {
        let options = (*self.0.connect_options()).clone();
        SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
    }

    pub(super) fn cut(&self) {
        panic!("there is no connection to a file that could be cut");
    }
}

macro_rules! hold {
    ($table:expr) => {
        idempotent_testkit::broker_conformance!(
            delayed_work_keeps_the_laws,
            $table,
            // There is no connection to a file that could be cut.
            without: [what_was_held_comes_again_when_its_connection_is_cut]
        );
    };
}
pub(super) use hold;
