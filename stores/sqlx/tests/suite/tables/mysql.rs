//! On MariaDB.
#[path = "server.rs"]
mod server;

use sqlx::mysql::{MySqlPool, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

pub(crate) use self::server::{BEGIN, Lines, fixture, other_transaction};

pub(crate) type Db = sqlx::MySql;
pub(crate) type Server = idempotent_harness::servers::MariaDbServer;

pub(crate) const ANALYZE: &str = "ANALYZE TABLE";
/// Selects another database.
pub(crate) const ELSEWHERE: &str = "USE information_schema";
pub(crate) const HEX: &str = "unhex('DIGITS')";
/// A source of the numbers `n`, each with an id.
pub(crate) const NUMBERS: &str = "(SELECT seq AS n FROM seq_1_to_ROWS) AS numbers";
pub(crate) const ID: &str = "md5(n)";

/// Explains what a statement reads, and by which index.
pub(crate) async fn explain(pool: &MySqlPool, sql: &str) -> String {
    let rows = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {sql}"))).fetch_all(pool).await.unwrap();
    let read = |row: &MySqlRow| {
        let text = |at: &str| row.try_get::<Option<String>, _>(at).unwrap().unwrap_or_default();
        format!("{} by {} ({})", text("table"), text("key"), text("type"))
    };
    rows.iter().map(read).collect::<Vec<_>>().join("\n")
}
