//! The databases that an outbox supports.
use std::future::Future;

use idempotent_core::StoreError;
use sqlx::Pool;

use crate::schema::{SchemaStatus, SchemaStep};
use crate::sql_database::SqlDatabase;
pub(super) use crate::sql_database::{RowValues, SqlDialect, SqlValue};
use crate::table::Table;

/// A database that can contain an [`Outbox`](crate::Outbox): `sqlx::Postgres`, `sqlx::MySql` or `sqlx::Sqlite`, each with its
/// feature. The trait is sealed.
pub trait OutboxDb: SqlDatabase {
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
}

macro_rules! outbox_db {
    ($($feature:literal $db:ty, $module:ident;)+) => {$(
        #[cfg(feature = $feature)]
        impl OutboxDb for $db {
            async fn migrate(pool: &Pool<Self>, table: &str, create: bool) -> Result<Option<String>, StoreError> {
                crate::$module::outbox::migrate(pool, &Table::new(table)?, create).await
            }

            async fn schema_status(pool: &Pool<Self>, table: &str) -> Result<SchemaStatus, StoreError> {
                crate::$module::outbox::status(pool, &Table::new(table)?).await
            }

            fn schema_steps(table: &str) -> Result<Vec<SchemaStep>, StoreError> {
                Ok(crate::$module::outbox::steps(&Table::new(table)?))
            }
        }
    )+};
}

outbox_db! {
    "mysql" sqlx::MySql, mysql;
    "postgres" sqlx::Postgres, postgres;
    "sqlite" sqlx::Sqlite, sqlite;
}
