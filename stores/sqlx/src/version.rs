//! A version guard, which accepts only updates that are newer than the current version.
use std::future::Future;
use std::sync::Arc;

use idempotent_core::StoreError;
use sqlx::AssertSqlSafe;

use crate::table::Table;

/// A table of monotone versions, one for each entity and set of fields, compared and set in the caller's transaction.
///
/// Use it for messages that contain the current state and a version number from their producer. Each update is accepted at most
/// once, and an outdated update is rejected. Sets of fields of one entity have independent versions: an address of version 3 does
/// not block a price of version 2. The entity's own table needs no version column.
///
/// Call the guard before the update in the same transaction, and update only if the version is
/// [accepted](VersionCheck::Accepted). Both commit or roll back together (level L3). Another transaction with the same entity
/// and fields waits until this transaction ends, as for an updated row. Keep the transaction short, or set `lock_timeout`.
///
/// # When it is enough
/// - Enough: the whole effect is an update in this database, and the producer numbers its updates.
/// - Not enough: the effect is outside of the database (mail, payment): a rollback does not undo it. Use the executor, with
///   the version guard as the last step.
/// - Not enough: messages that contain a difference ("10 more"), as a rejected message is lost. Use [`next`](Self::next), which
///   accepts each once and in order, or an idempotency key for each message.
/// - Not enough: sets of fields that overlap. Two updates with the same version, one of the address and one of address and
///   price, are independent in the guard, and the later one overwrites the address. Under one common name, the later one
///   is rejected as a duplicate and its price is lost. Choose disjoint sets, or one version for the whole entity.
/// - Only inserts: a unique column is sufficient, `INSERT … ON CONFLICT DO NOTHING` in the same transaction.
///
/// A lookup before the run is no guard: two copies can look up the version before either has run
/// (see `tests/suite/versions.rs`).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotent_sqlx::{VersionGuard, VersionCheck};
///
/// let guard = VersionGuard::new("entity_version")?;
/// guard.create(&mut *pool.acquire().await?).await?; // or in your own migration
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

/// The result of a version check. Complete by definition: the version is newer, the same, older, or too new.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionCheck {
    /// The version is newer, and is now the current version: apply the update.
    Accepted,
    /// The current version has this number: a duplicate.
    Same,
    /// The version is older than the current version.
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
    /// Creates a handle to the table of this name: `[a-z_][a-z0-9_]*` of at most 63 bytes, in the connection's search path.
    ///
    /// # Errors
    /// The name is invalid.
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

    /// Creates the table if it is missing.
    ///
    /// # Errors
    /// The error of the database.
    ///
    /// # Cancellation
    /// The table may exist or not.
    pub async fn create(&self, connection: &mut impl VersionConnection) -> Result<(), sqlx::Error> {
        connection.create(&self.create).await
    }

    /// Accepts a version that is higher than the current version, even if versions between them are missing. The first version is
    /// always accepted. This is one statement, or two if the version is not accepted.
    ///
    /// # Errors
    /// The error of the database, e.g. a lock timeout, or a serialization failure above READ COMMITTED: roll back, and retry. A version above `i64::MAX` cannot be encoded.
    ///
    /// # Cancellation
    /// The version may be accepted or not: roll back.
    pub async fn newer(
        &self,
        connection: &mut impl VersionConnection,
        entity: &str,
        fields: &str,
        version: u64,
    ) -> Result<VersionCheck, sqlx::Error> {
        self.ask(&self.newer, connection, entity, fields, version).await
    }

    /// Accepts only the version that directly follows the current version, starting with 1. Each version is accepted once and in
    /// order. A version that is ahead must be redelivered later.
    ///
    /// # Errors
    /// The same as [`newer`](Self::newer).
    ///
    /// # Cancellation
    /// The same as [`newer`](Self::newer).
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

/// A connection for a [`VersionGuard`]: `&mut *tx` of a transaction. This trait is sealed.
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
