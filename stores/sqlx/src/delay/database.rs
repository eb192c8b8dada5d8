//! The databases that a delay table supports.
use std::future::Future;

use idempotent_core::StoreError;
use sqlx::Pool;

use crate::schema::{SchemaStatus, SchemaStep};
use crate::sql_database::SqlDatabase;
use crate::table::Table;

/// A database that can contain a [`DelayTable`](crate::DelayTable): `sqlx::Postgres`, `sqlx::MySql` or `sqlx::Sqlite`, each with its
/// feature. The trait is sealed.
pub trait DelayDb: SqlDatabase {
    /// Checks the tables, or creates them with `create`. Returns the schema or database in which they are, if there are several.
    #[doc(hidden)]
    fn migrate(
        pool: &Pool<Self>,
        table: &str,
        create: bool,
    ) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// Returns the status of the schema of the table.
    #[doc(hidden)]
    fn schema_status(pool: &Pool<Self>, table: &str) -> impl Future<Output = Result<SchemaStatus, StoreError>> + Send;

    /// Returns the SQL text of all migrations of the table.
    #[doc(hidden)]
    fn schema_steps(table: &str) -> Result<Vec<SchemaStep>, StoreError>;

    /// Converts an error. `sent`: the statement may have been executed.
    #[doc(hidden)]
    fn store_error(pool: &Pool<Self>, table: &str, sent: bool, error: sqlx::Error) -> StoreError;
}

macro_rules! delay_db {
    ($($feature:literal $db:ty, $module:ident;)+) => {$(
        #[cfg(feature = $feature)]
        impl DelayDb for $db {
            async fn migrate(pool: &Pool<Self>, table: &str, create: bool) -> Result<Option<String>, StoreError> {
                crate::$module::delay::migrate(pool, &Table::new(table)?, create).await
            }

            async fn schema_status(pool: &Pool<Self>, table: &str) -> Result<SchemaStatus, StoreError> {
                crate::$module::delay::status(pool, &Table::new(table)?).await
            }

            fn schema_steps(table: &str) -> Result<Vec<SchemaStep>, StoreError> {
                Ok(crate::$module::delay::steps(&Table::new(table)?))
            }

            fn store_error(pool: &Pool<Self>, table: &str, sent: bool, error: sqlx::Error) -> StoreError {
                crate::$module::delay::told(pool, table, sent, error)
            }
        }
    )+};
}

delay_db! {
    "mysql" sqlx::MySql, mysql;
    "postgres" sqlx::Postgres, postgres;
    "sqlite" sqlx::Sqlite, sqlite;
}
