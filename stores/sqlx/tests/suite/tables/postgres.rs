//! On PostgreSQL.
#[path = "server.rs"]
mod server;

use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Row};

pub(crate) use self::server::{BEGIN, Lines, fixture, other_transaction};

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Server = idempotent_harness::servers::PostgresServer;

pub(crate) const ANALYZE: &str = "ANALYZE";
/// Selects another schema.
pub(crate) const ELSEWHERE: &str = "SET LOCAL search_path TO pg_catalog";
pub(crate) const HEX: &str = "decode('DIGITS','hex')";
/// A source of the numbers `n`, each with an id.
pub(crate) const NUMBERS: &str = "generate_series(1,ROWS) AS n";
pub(crate) const ID: &str = "decode(md5(n::text),'hex')";

/// Explains what a statement reads, and by which index.
pub(crate) async fn explain(pool: &PgPool, sql: &str) -> String {
    let rows = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {sql}"))).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}
