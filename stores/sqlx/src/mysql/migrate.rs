//! Migration of the schema. sqlx's migrator is not used, because its bookkeeping belongs to the application.
//!
//! Each `CREATE TABLE` commits by itself on MySQL. Each migration can therefore be repeated, the table of applied
//! migrations is created first, and the next process continues an interrupted migration.
use std::time::Duration;

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::mysql::MySqlConnection;
#[cfg(any(feature = "delay", feature = "outbox"))]
use sqlx::{ConnectOptions, Connection, MySqlPool};
use sqlx::{MySql, Row};
use tokio::time::timeout;

use super::dialect::MySqlDialect;
#[cfg(any(feature = "delay", feature = "outbox"))]
use super::{open::shown, server_version::ServerVersion};
use crate::catalog::{CatalogError, KnownSchema, apply, current_status, fits, inspect};
use crate::row::COLUMNS;
use crate::schema::{self, Migration, SchemaStatus};
use crate::server::{ErrorContext, Phase};
use crate::sql_database::CatalogSql;
use crate::table::Table;

/// All migrations. Texts are bytes, so that no character set applies. `expires_at` has no index, because each completion
/// would have to update the index.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "record table",
        sql: "CREATE TABLE IF NOT EXISTS {table} (
 id binary(16) NOT NULL PRIMARY KEY,
 v smallint NOT NULL,
 name longblob NOT NULL,
 state smallint NOT NULL,
 owner varbinary(16),
 fencing bigint NOT NULL,
 attempt bigint NOT NULL,
 until_at bigint NOT NULL,
 taken_over bigint,
 fingerprint varbinary(17),
 expires_at bigint NOT NULL,
 first_seen bigint NOT NULL,
 updated_at bigint NOT NULL,
 value longblob,
 error longblob,
 display longblob
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    },
    Migration {
        name: "steps of runs",
        // A name has at most 200 bytes.
        sql: "CREATE TABLE IF NOT EXISTS {steps} (
 id binary(16) NOT NULL,
 name varbinary(200) NOT NULL,
 begun bigint NOT NULL,
 place bigint NOT NULL,
 state smallint NOT NULL,
 value longblob,
 PRIMARY KEY (id, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    },
    Migration {
        name: "order tables of streams",
        sql: "CREATE TABLE IF NOT EXISTS {lines} (
 id binary(16) NOT NULL PRIMARY KEY,
 line mediumblob NOT NULL,
 until_at bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    },
];

/// The tables of a store.
pub(super) const KNOWN: KnownSchema<'static> =
    KnownSchema { migrations: MIGRATIONS, columns: &COLUMNS, skips_locked: false };

/// The SQL texts about tables and applied migrations.
pub(crate) const CATALOG: CatalogSql = CatalogSql {
    columns: "(version bigint NOT NULL PRIMARY KEY, checksum varbinary(32) NOT NULL, \
              applied_at timestamp NOT NULL DEFAULT current_timestamp) ENGINE=InnoDB",
    row: "(version, checksum) VALUES ({version}, x'{checksum}')",
    current_schemas: "database()",
    count_tables: "SELECT CAST(count(*) AS SIGNED) FROM information_schema.tables \
                   WHERE table_schema={schema} AND table_name='{name}'",
    count_columns: "SELECT CAST(count(*) AS SIGNED) FROM information_schema.columns \
                    WHERE table_schema={schema} AND table_name='{name}' AND column_name IN ({columns})",
};

/// The time limit of a migration, which may wait for the migration of another process.
const MIGRATION: Duration = Duration::from_secs(60);
/// The named lock of migrations, one for the whole server.
const LOCK: &str = "idempotent migrations";
/// The first MariaDB that skips locked rows. Each supported MySQL does.
#[cfg(any(feature = "delay", feature = "outbox"))]
const SKIPS_LOCKED: (u32, u32) = (10, 6);

/// Returns the database in which tables without a database are found.
pub(super) async fn database(connection: &mut MySqlConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("SELECT database()").fetch_one(connection).await
}

/// Applies what is missing. A second process waits for the lock, then finds nothing to do. Where nothing is missing
/// nothing is locked or written.
pub(super) async fn migrate(
    connection: &mut MySqlConnection,
    table: &Table,
    place: &ErrorContext,
    create: bool,
    known: &KnownSchema<'_>,
) -> Result<(), StoreError> {
    let migrate = async {
        let found = inspect::<MySql>(connection, table).await?;
        if !schema::is_due(&found, known.migrations, table, create)? {
            return fits::<MySql>(connection, table, known).await;
        }
        // The lock is released when the connection closes, after this function.
        let lock = sqlx::query("SELECT get_lock(?, 3600)").bind(LOCK);
        let had: Option<i64> = lock.fetch_one(&mut *connection).await?.try_get(0)?;
        if had != Some(1) {
            let why = format!("{}: the lock of migrations is taken; try again", place.database);
            return Err(StoreError::new(StoreErrorKind::NotApplied).because(why).into());
        }
        // Another process may have migrated meanwhile.
        let found = inspect::<MySql>(connection, table).await?;
        let applied = schema::applied(&found, known.migrations, table)?;
        apply::<MySql>(connection, &known.steps::<MySql>(table)[applied..]).await?;
        fits::<MySql>(connection, table, known).await
    };
    let migrated: Result<(), CatalogError> =
        timeout(MIGRATION, migrate).await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?;
    migrated.map_err(|error| error.told(|error| place.error::<MySqlDialect>(Phase::Connecting, error)))
}

/// Returns the status of the schema.
pub(super) async fn status(
    connection: &mut MySqlConnection,
    table: &Table,
    place: &ErrorContext,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, StoreError> {
    let status = timeout(MIGRATION, current_status::<MySql>(connection, table, known)).await;
    let status = status.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?;
    status.map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))
}

/// Checks the tables of an outbox or a delay table, or creates them with `create`. Returns the table in its database.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) async fn open_by(
    pool: &MySqlPool,
    table: Table,
    create: bool,
    known: &KnownSchema<'_>,
) -> Result<Table, StoreError> {
    let place = place(pool, table.name());
    let told = |error| place.error::<MySqlDialect>(Phase::Connecting, error);
    // A connection outside of the pool: if this future is dropped, the connection closes, and with it the lock of migrations.
    let mut connection = pool.connect_options().connect().await.map_err(told)?;
    if known.skips_locked {
        let (version, server) = ServerVersion::of(&mut connection).await.map_err(told)?;
        server.check_for(&version, SKIPS_LOCKED)?;
    }
    migrate(&mut connection, &table, &place, create, known).await?;
    let database = database(&mut connection).await;
    // The connection ends even if its closing fails.
    let _ = connection.close().await;
    Ok(table.found_in(&database.map_err(told)?))
}

/// Returns the status of the schema of an outbox or a delay table, by a connection outside of the pool.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) async fn status_by(
    pool: &MySqlPool,
    table: &Table,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, StoreError> {
    let connection = pool.connect_options().connect().await;
    let mut connection = connection.map_err(|error| error_of(pool, table.name(), false, error))?;
    let status = status(&mut connection, table, &place(pool, table.name()), known).await?;
    // The connection ends even if its closing fails.
    let _ = connection.close().await;
    Ok(status)
}

/// Converts an error of an outbox or a delay table. `sent`: the statement may have been executed.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) fn error_of(pool: &MySqlPool, table: &str, sent: bool, error: sqlx::Error) -> StoreError {
    place(pool, table).error::<MySqlDialect>(if sent { Phase::Executing } else { Phase::Connecting }, error)
}

/// Returns the names of a pool's database for errors.
#[cfg(any(feature = "delay", feature = "outbox"))]
fn place(pool: &MySqlPool, table: &str) -> ErrorContext {
    let connections = pool.options().get_max_connections();
    let options = pool.connect_options();
    let (database, socket) = (shown(&options), options.get_socket().is_some());
    ErrorContext { database, table: table.into(), connections, read_only: false, socket }
}
