//! The effect of the handler: a row in a database. At level L1 this database has no idempotency keys; at level L3 the
//! store uses the same database.
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{anyhow, bail};
#[cfg(feature = "servers")]
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
#[cfg(feature = "servers")]
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

#[cfg(feature = "servers")]
use crate::level::{is_mysql, is_postgres};
use crate::places::Places;

/// Table `effects(key, worker, at_ms)`: without a unique constraint, so that an effect made twice is there twice.
#[derive(Debug)]
pub(crate) enum Effects {
    /// A file of their own.
    Apart(SqlitePool),
    /// In the file of the records: written in the transaction of a run, and only counted here.
    InFile(SqlitePool),
    #[cfg(feature = "servers")]
    InPostgres(PgPool),
    #[cfg(feature = "servers")]
    InMySql(MySqlPool),
}

/// The time to wait for the lock of another process.
const PATIENCE: Duration = Duration::from_secs(10);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS effects(key TEXT, worker TEXT, at_ms BIGINT)";
const ALL: &str = "SELECT count(*) FROM effects";
const TWICE: &str = "SELECT count(*) FROM (SELECT 1 FROM effects GROUP BY key HAVING count(*) > 1) AS twice";

/// In MySQL `key` is a reserved word, and a TEXT column treats texts that differ in case as equal.
#[cfg(feature = "servers")]
const MYSQL_TABLE: &str = "CREATE TABLE IF NOT EXISTS effects(`key` BLOB, worker TEXT, at_ms BIGINT) ENGINE=InnoDB";
#[cfg(feature = "servers")]
const MYSQL_TWICE: &str = "SELECT count(*) FROM (SELECT 1 FROM effects GROUP BY `key` HAVING count(*) > 1) AS twice";
impl Effects {
    /// `anew` without the rows that are in there.
    pub(crate) async fn open(places: &Places, anew: bool) -> anyhow::Result<Self> {
        match places.effects() {
            Some(path) => Self::in_file(path, anew).await.map(Self::Apart),
            #[cfg(feature = "servers")]
            None if is_postgres(&places.store) => Self::in_postgres(&places.store, anew).await,
            #[cfg(feature = "servers")]
            None if is_mysql(&places.store) => Self::in_mysql(&places.store, anew).await,
            None => match places.file() {
                Some(file) => Self::in_file(file, anew).await.map(Self::InFile),
                None => bail!("there is no database to write effects to"),
            },
        }
    }

    async fn in_file(path: &Path, anew: bool) -> anyhow::Result<SqlitePool> {
        let unusable = |error: &dyn std::fmt::Display| anyhow!("cannot use the effects {}: {error}", path.display());
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("") && !folder.is_dir()) {
            return Err(unusable(&format!("there is no folder {}", folder.display())));
        }
        let began = Instant::now();
        loop {
            match try_file(path, anew).await {
                Ok(effects) => return Ok(effects),
                // Two processes that open a new file at once: one switches the journal, which no timeout covers.
                Err(error) if error.to_string().contains("locked") && began.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(unusable(&error)),
            }
        }
    }

    #[cfg(feature = "servers")]
    async fn in_postgres(url: &str, anew: bool) -> anyhow::Result<Self> {
        let opened = async {
            let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE).connect(url).await?;
            // Two processes at once: the second one finds what it was about to make.
            let mut made = pool.begin().await?;
            sqlx::query("SELECT pg_advisory_xact_lock(hashtext('effects'))").execute(&mut *made).await?;
            sqlx::query(TABLE).execute(&mut *made).await?;
            if anew {
                sqlx::query("DELETE FROM effects").execute(&mut *made).await?;
            }
            made.commit().await?;
            sqlx::Result::Ok(pool)
        };
        opened.await.map(Self::InPostgres).map_err(unusable)
    }

    #[cfg(feature = "servers")]
    async fn in_mysql(url: &str, anew: bool) -> anyhow::Result<Self> {
        let opened = async {
            let pool = MySqlPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE).connect(url).await?;
            sqlx::query(MYSQL_TABLE).execute(&pool).await?;
            if anew {
                sqlx::query("DELETE FROM effects").execute(&pool).await?;
            }
            sqlx::Result::Ok(pool)
        };
        opened.await.map(Self::InMySql).map_err(unusable)
    }

    /// The effect, by itself. It is on the disk when this returns.
    pub(crate) async fn insert(&self, key: &str, worker: &str) -> anyhow::Result<()> {
        let Self::Apart(pool) = self else { bail!("at this level effects belong to a transaction") };
        let now = SystemTime::UNIX_EPOCH.elapsed()?.as_millis();
        sqlx::query("INSERT INTO effects(key, worker, at_ms) VALUES (?, ?, ?)")
            .bind(key)
            .bind(worker)
            .bind(i64::try_from(now)?)
            .execute(pool)
            .await?;
        Ok(())
    }

    /// Rows, and keys that have more than one.
    pub(crate) async fn rows(&self) -> anyhow::Result<(i64, i64)> {
        Ok(match self {
            Self::Apart(pool) | Self::InFile(pool) => {
                (sqlx::query_scalar(ALL).fetch_one(pool).await?, sqlx::query_scalar(TWICE).fetch_one(pool).await?)
            }
            #[cfg(feature = "servers")]
            Self::InPostgres(pool) => {
                (sqlx::query_scalar(ALL).fetch_one(pool).await?, sqlx::query_scalar(TWICE).fetch_one(pool).await?)
            }
            #[cfg(feature = "servers")]
            Self::InMySql(pool) => {
                (sqlx::query_scalar(ALL).fetch_one(pool).await?, sqlx::query_scalar(MYSQL_TWICE).fetch_one(pool).await?)
            }
        })
    }

    /// Closes the database, so that one file remains instead of three.
    pub(crate) async fn close(&self) {
        match self {
            Self::Apart(pool) | Self::InFile(pool) => pool.close().await,
            #[cfg(feature = "servers")]
            Self::InPostgres(pool) => pool.close().await,
            #[cfg(feature = "servers")]
            Self::InMySql(pool) => pool.close().await,
        }
    }
}

#[cfg(feature = "servers")]
fn unusable(error: sqlx::Error) -> anyhow::Error {
    anyhow!("cannot use the effects in the store's database: {error}")
}

async fn try_file(path: &Path, anew: bool) -> sqlx::Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(PATIENCE)
        .journal_mode(SqliteJournalMode::Wal)
        // As durable as the store: a consumed key whose effect is lost would be worse than a slow disk.
        .synchronous(SqliteSynchronous::Full);
    // SQLite has one writer at a time in any case.
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
    sqlx::query(TABLE).execute(&pool).await?;
    if anew {
        // The rows, not the file: it may hold other tables.
        sqlx::query("DELETE FROM effects").execute(&pool).await?;
    }
    Ok(pool)
}
