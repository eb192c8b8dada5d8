//! Effects in an SQLite file that also contains the records.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

/// The effects in their order: the name and the number of each.
const TABLE: &str =
    "CREATE TABLE effects (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, number INTEGER NOT NULL)";

pub(super) const INSERT: &str = "INSERT INTO effects (name, number) VALUES (?, ?)";

/// A stopped process may be in the middle of a transaction.
const BUSY: Duration = Duration::from_secs(10);

pub(super) async fn pool(file: &str) -> anyhow::Result<SqlitePool> {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY);
    Ok(SqlitePoolOptions::new().max_connections(1).connect_with(options).await?)
}

/// Opens the pool and creates the table.
pub(super) async fn pool_of_new(file: &Path) -> anyhow::Result<SqlitePool> {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY).create_if_missing(true);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
    sqlx::query("PRAGMA journal_mode = WAL").execute(&pool).await?;
    sqlx::query(TABLE).execute(&pool).await?;
    Ok(pool)
}

/// Writes an effect outside of a transaction.
pub(super) async fn put(pool: &SqlitePool, name: &str, number: u64) -> sqlx::Result<()> {
    let insert = sqlx::query(INSERT);
    insert.bind(name).bind(number.cast_signed()).execute(pool).await.map(drop)
}

/// All of them, in their order.
pub(super) async fn all(file: &Path) -> anyhow::Result<Vec<(String, u64)>> {
    let pool = pool(&file.display().to_string()).await?;
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT name, number FROM effects ORDER BY seq").fetch_all(&pool).await?;
    Ok(rows.into_iter().map(|(name, number)| (name, number.cast_unsigned())).collect())
}

/// Counts the effects of each name.
pub(super) fn counts(all: &[(String, u64)]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for (name, _) in all {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}
