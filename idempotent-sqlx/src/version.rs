//! A version guard: of updates that arrive out of order, only those go through that are newer than what is there.
use std::future::Future;
use std::sync::Arc;

use idempotent_core::StoreError;
use sqlx::AssertSqlSafe;

use crate::table::Table;

/// Compares and sets a monotone version for each (entity, set of fields), in a transaction of yours.
///
/// For messages that say "this is how it is now" and carry a number from their producer: each update is accepted at most
/// once, and one that was overtaken does not come through. Versions of different sets of fields of one entity do not know
/// of each other: an address of version 3 does not block a price of version 2, and no column is needed for either in the
/// entity's own table.
///
/// Call it in the transaction that makes the update, before it, and update only what was [accepted](VersionCheck::Accepted):
/// both commit together or not at all (level L3). Another transaction with the same entity and fields waits until this one
/// ends, as for a row that it updates: keep it short, and set `lock_timeout` where that is too long.
///
/// # When it is enough
/// - Enough: the whole effect is an update in this database, and the producer counts.
/// - Not enough: the effect is elsewhere (mail, payment): what was accepted and rolled back was sent all the same. Use the
///   executor, and this as its last step.
/// - Not enough: messages that add something ("10 more"): leaving one out loses it. Use [`next`](Self::next), which takes
///   each once and in order, or an idempotency key for each.
/// - Only inserts: a unique column does it alone, `INSERT … ON CONFLICT DO NOTHING` in the same transaction.
///
/// To look first, and to run then, is none of these: two copies both look before either has run
/// (`tests/suite/versions.rs`, `s0_10_…`).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotent_sqlx::{VersionGuard, VersionCheck};
///
/// let guard = VersionGuard::new("entity_version")?;
/// guard.create(&mut *pool.acquire().await?).await?; // or by a migration of yours
///
/// let mut tx = pool.begin().await?;
/// match guard.newer(&mut *tx, "customer/17", "address", 3).await? {
///     VersionCheck::Accepted => {
///         sqlx::query("UPDATE customer SET address = 'here' WHERE id = 17").execute(&mut *tx).await?;
///     }
///     // A duplicate, or overtaken: done with it.
///     VersionCheck::Same | VersionCheck::Older { .. } => {}
///     // Only by `next`: one is missing, let it come again later.
///     VersionCheck::Ahead { .. } => {}
/// }
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct VersionGuard {
    create: Arc<str>,
    newer: Arc<str>,
    next: Arc<str>,
    current: Arc<str>,
}

/// What becomes of an update with some version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionCheck {
    /// It is newer, and from now on the current one: make the update.
    Accepted,
    /// The current version has this number: a duplicate.
    Same,
    /// It was overtaken.
    Older {
        /// The current version.
        current: u64,
    },
    /// Asked for by [`VersionGuard::next`]: versions are missing in between.
    Ahead {
        /// The current version; 0 if there is none.
        current: u64,
    },
}

impl VersionGuard {
    /// With its versions in this table: `[a-z_][a-z0-9_]*` of at most 63 bytes, in the connection's search path.
    ///
    /// # Errors
    /// If that is no name.
    pub fn new(table: &str) -> Result<Self, StoreError> {
        let table = Table::new(table)?.quoted();
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {table} (entity TEXT NOT NULL, fields TEXT NOT NULL, version BIGINT NOT NULL, \
             PRIMARY KEY (entity, fields))"
        );
        let set = |guard: &str, first: &str| {
            format!(
                "INSERT INTO {table} AS v (entity,fields,version) SELECT $1,$2,$3 WHERE {first} \
                 ON CONFLICT (entity,fields) DO UPDATE SET version=excluded.version WHERE {guard}"
            )
        };
        let newer = set("v.version<excluded.version", "true");
        let known = format!("EXISTS (SELECT 1 FROM {table} WHERE entity=$1 AND fields=$2)");
        let next = set("v.version=excluded.version-1", &format!("$3=1 OR {known}"));
        let current = format!("SELECT version FROM {table} WHERE entity=$1 AND fields=$2");
        Ok(Self { create: create.into(), newer: newer.into(), next: next.into(), current: current.into() })
    }

    /// Makes the table, if it is not there.
    ///
    /// # Errors
    /// The database's.
    ///
    /// # Cancellation
    /// It may be made or not.
    pub async fn create(&self, connection: &mut impl VersionConnection) -> Result<(), sqlx::Error> {
        connection.create(&self.create).await
    }

    /// Accepts a version that is higher than the current one, whatever lies in between. The first is accepted whatever it
    /// is. One statement, and a second one where it is not accepted.
    ///
    /// # Errors
    /// The database's, such as a lock that was not to be had in time, or a serialisation failure above READ COMMITTED:
    /// roll back, and try again. A version above `i64::MAX` cannot be encoded.
    ///
    /// # Cancellation
    /// It may be accepted or not: roll back.
    pub async fn newer(
        &self,
        connection: &mut impl VersionConnection,
        entity: &str,
        fields: &str,
        version: u64,
    ) -> Result<VersionCheck, sqlx::Error> {
        self.ask(&self.newer, connection, entity, fields, version).await
    }

    /// Accepts the version behind the current one, and 1 as the first: each once, and in order. One that is ahead has to
    /// come again later.
    ///
    /// # Errors
    /// As [`newer`](Self::newer).
    ///
    /// # Cancellation
    /// As [`newer`](Self::newer).
    pub async fn next(
        &self,
        connection: &mut impl VersionConnection,
        entity: &str,
        fields: &str,
        version: u64,
    ) -> Result<VersionCheck, sqlx::Error> {
        self.ask(&self.next, connection, entity, fields, version).await
    }

    async fn ask(
        &self,
        sql: &Arc<str>,
        connection: &mut impl VersionConnection,
        entity: &str,
        fields: &str,
        version: u64,
    ) -> Result<VersionCheck, sqlx::Error> {
        let number = i64::try_from(version).map_err(|error| sqlx::Error::Encode(error.into()))?;
        if connection.set(sql, entity, fields, number).await? > 0 {
            return Ok(VersionCheck::Accepted);
        }
        let current = connection.current(&self.current, entity, fields).await?;
        let current = current.map_or(0, i64::unsigned_abs);
        Ok(match version.cmp(&current) {
            std::cmp::Ordering::Less => VersionCheck::Older { current },
            std::cmp::Ordering::Equal => VersionCheck::Same,
            std::cmp::Ordering::Greater => VersionCheck::Ahead { current },
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A connection that a [`VersionGuard`] works on: `&mut *tx` of a transaction. Not to be implemented elsewhere.
pub trait VersionConnection: sealed::Sealed + Send {
    #[doc(hidden)]
    fn create(&mut self, sql: &Arc<str>) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    #[doc(hidden)]
    fn set(
        &mut self,
        sql: &Arc<str>,
        entity: &str,
        fields: &str,
        version: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
    #[doc(hidden)]
    fn current(
        &mut self,
        sql: &Arc<str>,
        entity: &str,
        fields: &str,
    ) -> impl Future<Output = Result<Option<i64>, sqlx::Error>> + Send;
}

macro_rules! versions {
    ($($feature:literal $connection:ty;)+) => {$(
        #[cfg(feature = $feature)]
        impl sealed::Sealed for $connection {}

        #[cfg(feature = $feature)]
        impl VersionConnection for $connection {
            async fn create(&mut self, sql: &Arc<str>) -> Result<(), sqlx::Error> {
                sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *self).await.map(drop)
            }

            async fn set(
                &mut self,
                sql: &Arc<str>,
                entity: &str,
                fields: &str,
                version: i64,
            ) -> Result<u64, sqlx::Error> {
                let set = sqlx::query(AssertSqlSafe(sql.clone())).bind(entity.to_owned()).bind(fields.to_owned());
                Ok(set.bind(version).execute(&mut *self).await?.rows_affected())
            }

            async fn current(
                &mut self,
                sql: &Arc<str>,
                entity: &str,
                fields: &str,
            ) -> Result<Option<i64>, sqlx::Error> {
                let current = sqlx::query_scalar(AssertSqlSafe(sql.clone())).bind(entity.to_owned());
                current.bind(fields.to_owned()).fetch_optional(&mut *self).await
            }
        }
    )+};
}

versions! {
    "postgres" sqlx::PgConnection;
    "sqlite" sqlx::SqliteConnection;
}
