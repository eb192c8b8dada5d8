//! On MariaDB and MySQL.
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
pub(crate) const NUMBERS: &str = "(WITH ten AS (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 \
    UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) \
    SELECT 1+a.d+10*b.d+100*c.d+1000*e.d+10000*f.d AS n FROM ten a,ten b,ten c,ten e,ten f HAVING n<=ROWS) AS numbers";
pub(crate) const ID: &str = "left(sha2(n,256),32)";

/// Explains what a statement reads, and by which index.
pub(crate) async fn explain(pool: &MySqlPool, sql: &str) -> String {
    // The settings of a statement cannot be explained.
    let sql = sql.rsplit(" FOR */ ").next().unwrap_or(sql);
    let rows = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN /*!80000 FORMAT=TRADITIONAL */ {sql}")))
        .fetch_all(pool)
        .await
        .unwrap();
    let read = |row: &MySqlRow| {
        let text = |at: &str| row.try_get::<Option<String>, _>(at).unwrap().unwrap_or_default();
        format!("{} by {} ({})", text("table"), text("key"), text("type"))
    };
    rows.iter().map(read).collect::<Vec<_>>().join("\n")
}
