//! The interface of a database for the tables of an outbox or a delay table, on a pool of the application.
use std::future::Future;

use idempotent_core::StoreError;
use sqlx::Pool;
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;

use crate::catalog::KnownSchema;
use crate::schema::SchemaStatus;
use crate::sql_database::{SqlDatabase, SqlDialect};
use crate::table::Table;

/// A database with tables of an outbox or a delay table. It is public only because public traits refer to it.
pub trait TableDatabase: SqlDatabase {
    /// Checks the tables of an outbox or a delay table, or creates them with `create`. Returns the table in the schema or database in
    /// which it is.
    #[doc(hidden)]
    fn open_tables(
        pool: &Pool<Self>,
        table: Table,
        create: bool,
        known: KnownSchema<'static>,
    ) -> impl Future<Output = Result<Table, StoreError>> + Send;

    /// Returns the status of the schema of an outbox or a delay table.
    #[doc(hidden)]
    fn schema_status(
        pool: &Pool<Self>,
        table: Table,
        known: KnownSchema<'static>,
    ) -> impl Future<Output = Result<SchemaStatus, StoreError>> + Send;

    /// Converts an error. `sent`: the statement may have been executed.
    #[doc(hidden)]
    fn store_error(pool: &Pool<Self>, table: &str, sent: bool, error: sqlx::Error) -> StoreError;

    /// Closes the connection and the idle ones of its pool, if the error shows that their server takes no writes.
    #[doc(hidden)]
    fn close_refused(pool: &Pool<Self>, connection: &mut PoolConnection<Self>, error: &dyn DatabaseError);
}

macro_rules! table_databases {
    ($($feature:literal $db:ty, $module:ident, $close_refused:expr;)+) => {$(
        #[cfg(feature = $feature)]
        impl TableDatabase for $db {
            async fn open_tables(
                pool: &Pool<Self>,
                table: Table,
                create: bool,
                known: KnownSchema<'static>,
            ) -> Result<Table, StoreError> {
                crate::$module::migrate::open_by(pool, table, create, &known).await
            }

            async fn schema_status(
                pool: &Pool<Self>,
                table: Table,
                known: KnownSchema<'static>,
            ) -> Result<SchemaStatus, StoreError> {
                crate::$module::migrate::status_by(pool, &table, &known).await
            }

            fn store_error(pool: &Pool<Self>, table: &str, sent: bool, error: sqlx::Error) -> StoreError {
                crate::$module::migrate::error_of(pool, table, sent, error)
            }

            fn close_refused(pool: &Pool<Self>, connection: &mut PoolConnection<Self>, error: &dyn DatabaseError) {
                $close_refused(pool, connection, error);
            }
        }
    )+};
}

table_databases! {
    "mysql" sqlx::MySql, mysql, crate::server::close_refused::<crate::mysql::MySqlDialect>;
    "postgres" sqlx::Postgres, postgres, crate::server::close_refused::<crate::postgres::PostgresDialect>;
    // A file stays the same for all connections.
    "sqlite" sqlx::Sqlite, sqlite, |_: &Pool<Self>, _: &mut PoolConnection<Self>, _: &dyn DatabaseError| ();
}

/// Returns the table with this name of an outbox or a delay table.
///
/// # Errors
/// The name is invalid.
pub(crate) fn table_named<Db: TableDatabase>(name: &str) -> Result<Table, StoreError> {
    let table = Table::new(name)?.with_room_for_migrations()?;
    Ok(if Db::DIALECT == SqlDialect::MySql { table.in_backticks() } else { table })
}

/// An error of [`on_connection`].
pub(crate) struct PoolError {
    /// True if a statement may have been executed.
    #[cfg_attr(not(feature = "delay"), allow(dead_code, reason = "an outbox does not distinguish"))]
    pub(crate) sent: bool,
    pub(crate) error: sqlx::Error,
}

/// Runs statements on a connection of the pool. If its server takes no writes, as a demoted primary does, the connection and the idle
/// ones are closed, so that the next ones follow the address.
///
/// # Errors
/// No connection, or the error of a statement.
pub(crate) async fn on_connection<Db: TableDatabase, T>(
    pool: &Pool<Db>,
    run: impl AsyncFnOnce(&mut Db::Connection) -> Result<T, sqlx::Error>,
) -> Result<T, PoolError> {
    let mut connection = pool.acquire().await.map_err(|error| PoolError { sent: false, error })?;
    let done = run(&mut connection).await;
    if let Err(sqlx::Error::Database(refused)) = &done {
        Db::close_refused(pool, &mut connection, &**refused);
    }
    done.map_err(|error| PoolError { sent: true, error })
}
