//! What the handler does to the world: a row in a database that knows nothing of idempotency keys.
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::anyhow;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

/// Table `effects(key, worker, at_ms)`: without a unique constraint, so that an effect made twice is there twice.
#[derive(Debug)]
pub(crate) struct Effects(SqlitePool);

/// How long another process's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

impl Effects {
    /// `anew` without the rows that are in there.
    pub(crate) async fn open(path: &Path, anew: bool) -> anyhow::Result<Self> {
        let unusable = |error: &dyn std::fmt::Display| anyhow!("cannot use the effects {}: {error}", path.display());
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("") && !folder.is_dir()) {
            return Err(unusable(&format!("there is no folder {}", folder.display())));
        }
        let began = Instant::now();
        loop {
            match Self::try_open(path, anew).await {
                Ok(effects) => return Ok(effects),
                // Two processes that open a new file at once: one switches the journal, which no timeout covers.
                Err(error) if error.to_string().contains("locked") && began.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(unusable(&error)),
            }
        }
    }

    async fn try_open(path: &Path, anew: bool) -> sqlx::Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .busy_timeout(PATIENCE)
            .journal_mode(SqliteJournalMode::Wal)
            // As durable as the store: a consumed key whose effect is lost would be worse than a slow disk.
            .synchronous(SqliteSynchronous::Full);
        // SQLite has one writer at a time in any case.
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        sqlx::query("CREATE TABLE IF NOT EXISTS effects(key TEXT, worker TEXT, at_ms INTEGER)").execute(&pool).await?;
        if anew {
            // The rows, not the file: it may hold other tables.
            sqlx::query("DELETE FROM effects").execute(&pool).await?;
        }
        Ok(Self(pool))
    }

    /// The effect. It is on the disk when this returns.
    pub(crate) async fn insert(&self, key: &str, worker: &str) -> anyhow::Result<()> {
        let now = SystemTime::UNIX_EPOCH.elapsed()?.as_millis();
        sqlx::query("INSERT INTO effects(key, worker, at_ms) VALUES (?, ?, ?)")
            .bind(key)
            .bind(worker)
            .bind(i64::try_from(now)?)
            .execute(&self.0)
            .await?;
        Ok(())
    }

    /// Rows, and keys that have more than one.
    pub(crate) async fn rows(&self) -> anyhow::Result<(i64, i64)> {
        let twice = "SELECT count(*) FROM (SELECT 1 FROM effects GROUP BY key HAVING count(*) > 1)";
        let all = sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(&self.0).await?;
        Ok((all, sqlx::query_scalar(twice).fetch_one(&self.0).await?))
    }

    /// Leaves one file behind, not three.
    pub(crate) async fn close(&self) {
        self.0.close().await;
    }
}
