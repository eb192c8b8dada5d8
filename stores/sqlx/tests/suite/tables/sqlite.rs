//! In an SQLite file.
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row, Transaction};

pub(crate) type Db = sqlx::Sqlite;

pub(crate) const ANALYZE: &str = "ANALYZE";
/// A statement without an effect: a connection has one schema.
pub(crate) const ELSEWHERE: &str = "SELECT 1";
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(crate) const HEX: &str = "x'DIGITS'";
/// A source of the numbers `n`, each with an id.
pub(crate) const NUMBERS: &str =
    "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<ROWS) SELECT n FROM s)";
pub(crate) const ID: &str = "CAST(n AS BLOB)";

/// A pool of the caller's, a table's name, and what has to live as long.
pub(crate) async fn fixture(of: &str) -> (SqlitePool, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(8).connect_with(options).await.unwrap();
    (pool, format!("{of}_own"), folder)
}

/// Explains what a statement reads, and by which index.
pub(crate) async fn explain(pool: &SqlitePool, sql: &str) -> String {
    let rows = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(3)).collect::<Vec<_>>().join("\n")
}

/// Returns `None`, because SQLite has one writer at a time.
pub(crate) async fn other_transaction(_: &SqlitePool) -> Option<Transaction<'static, Db>> {
    None
}

/// Connections that cannot be cut, as those to a file.
pub(crate) struct Lines(SqlitePool);

impl Lines {
    pub(crate) async fn new(pool: &SqlitePool) -> Self {
        Self(pool.clone())
    }

    pub(crate) async fn pool(&self) -> SqlitePool {
        let options = (*self.0.connect_options()).clone();
        SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
    }

    pub(crate) fn cut(&self) {
        panic!("there is no connection to a file that could be cut");
    }

    pub(crate) fn begin_outage(&self, _: bool) {
        panic!("a file can be reached at any time");
    }

    pub(crate) fn end_outage(&self) {}
}
