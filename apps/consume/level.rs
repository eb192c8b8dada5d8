//! `--level transactional`: effect and record are committed together, in the store's own database.
use std::time::SystemTime;

use anyhow::bail;
use clap::ValueEnum;
use idempotent::idempotent;
use sqlx::{Database, Sqlite, Transaction};
#[cfg(feature = "servers")]
use sqlx::{MySql, Postgres};

use crate::places::Places;
use crate::{Job, SCOPE};

/// The guarantee for a crash between an effect and its record.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Level {
    /// L1: the effect is committed separately; if a worker dies after the effect, the handler runs again
    #[default]
    Marker,
    /// L3: effect and record are one transaction of the store's database, so there is one effect for each key
    Transactional,
}

/// A database that the effect can be written to in a run's transaction.
pub(crate) trait Beside: Database {
    /// One row.
    async fn insert(tx: &mut Transaction<'_, Self>, key: &str, worker: &str, at_ms: i64) -> sqlx::Result<()>;
}

/// Each has its own placeholders.
macro_rules! beside {
    ($($database:ty: $insert:literal;)*) => {$(
        impl Beside for $database {
            async fn insert(tx: &mut Transaction<'_, Self>, key: &str, worker: &str, at_ms: i64) -> sqlx::Result<()> {
                sqlx::query($insert).bind(key).bind(worker).bind(at_ms).execute(&mut **tx).await.map(drop)
            }
        }
    )*};
}
#[cfg(feature = "servers")]
beside! {
    MySql: "INSERT INTO effects(`key`, worker, at_ms) VALUES (?, ?, ?)";
    Postgres: "INSERT INTO effects(key, worker, at_ms) VALUES ($1, $2, $3)";
}
beside! {
    Sqlite: "INSERT INTO effects(key, worker, at_ms) VALUES (?, ?, ?)";
}

/// The same handler as `consume`, but that it is given a transaction. Its key is claimed by a lease, so that runs are
/// counted, and one that never succeeds goes to the dead letters.
#[idempotent(scene = mq, scope = SCOPE, key = key, with = job, transaction = leased(tx))]
pub(crate) async fn consume_in<Db: Beside>(
    job: &Job,
    worker: &str,
    key: &str,
    tx: &mut Transaction<'_, Db>,
) -> anyhow::Result<()> {
    job.rehearse().await?;
    let now = SystemTime::UNIX_EPOCH.elapsed()?.as_millis();
    Ok(Db::insert(tx, key, worker, i64::try_from(now)?).await?)
}

pub(crate) fn is_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

/// MariaDB's, too.
pub(crate) fn is_mysql(url: &str) -> bool {
    ["mysql://", "mariadb://"].iter().any(|scheme| url.starts_with(scheme))
}

impl Level {
    /// Rejects combinations that are not possible.
    pub(crate) fn check(self, places: &Places) -> anyhow::Result<()> {
        let has_transactions = places.is_file() || is_postgres(&places.store) || is_mysql(&places.store);
        if self == Self::Transactional && !has_transactions {
            bail!(
                "--level transactional needs effects and records in one database: give --store an SQLite file, or a \
                 postgres:// or mysql:// URL"
            );
        }
        Ok(())
    }

    /// Returns the name for the summary.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Marker => "L1",
            Self::Transactional => "L3",
        }
    }

    pub(crate) fn explained(self) -> &'static str {
        match self {
            Self::Marker => {
                "level L1: while the store remembers a consumed key its duplicates do not run. A worker that is killed, or stalls\n\
                 past its lease, between an effect and the note of it leaves a key that runs again: at most one effect twice for each."
            }
            Self::Transactional => {
                "level L3: effect and record are committed together, in the store's own database. A worker that is killed anywhere\n\
                 leaves both or neither: while the store remembers a key, that has one effect."
            }
        }
    }
}
