//! Migration of the schema. sqlx's migrator is not used, because its bookkeeping belongs to the application.
//!
//! Each `CREATE TABLE` commits by itself on MySQL. Each migration can therefore be repeated, the table of applied
//! migrations is created first, and the next process continues an interrupted migration.
use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};
#[cfg(any(feature = "delay", feature = "outbox"))]
use sqlx::{ConnectOptions, Connection, MySqlPool};
use tokio::time::timeout;

use super::dialect::MySqlDialect;
use super::open::MIGRATION;
#[cfg(any(feature = "delay", feature = "outbox"))]
use super::open::shown;
use crate::row::COLUMNS;
use crate::schema::{self, BookkeepingSql, Found, Migration, SchemaStatus};
use crate::server::{ErrorContext, Phase};
use crate::table::Table;

/// All migrations. Texts are bytes, so that no character set applies. `expires_at` has no index, because each completion
/// would have to update the index.
pub(super) const MIGRATIONS: &[Migration] = &[
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

/// The SQL texts that record applied migrations.
pub(super) const BOOKKEEPING: BookkeepingSql = BookkeepingSql {
    columns: "(version bigint NOT NULL PRIMARY KEY, checksum varbinary(32) NOT NULL, \
              applied_at timestamp NOT NULL DEFAULT current_timestamp) ENGINE=InnoDB",
    row: "(version, checksum) VALUES ({version}, x'{checksum}')",
};

/// The named lock of migrations, one for the whole server.
const LOCK: &str = "idempotent migrations";

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
    known: &[Migration],
) -> Result<(), StoreError> {
    migrate_to(connection, table, place, create, known, &COLUMNS).await
}

/// Applies missing migrations to a table with other columns.
pub(super) async fn migrate_to(
    connection: &mut MySqlConnection,
    table: &Table,
    place: &ErrorContext,
    create: bool,
    known: &[Migration],
    columns: &[&str],
) -> Result<(), StoreError> {
    let told = |error| place.error::<MySqlDialect>(Phase::Connecting, error);
    let found = inspect(connection, table).await.map_err(told)?;
    if !schema::is_due(&found, known, table, create)? {
        return fits(connection, table, place, columns).await;
    }
    // The lock is released when the connection closes, at the end of this function.
    let lock = sqlx::query("SELECT get_lock(?, 3600)").bind(LOCK);
    let had: Option<i64> = lock.fetch_one(&mut *connection).await.and_then(|row| row.try_get(0)).map_err(told)?;
    if had != Some(1) {
        let why = format!("{}: the lock of migrations is taken; try again", place.database);
        return Err(StoreError::new(StoreErrorKind::NotApplied).because(why));
    }
    // Another process may have migrated meanwhile.
    let found = inspect(connection, table).await.map_err(told)?;
    let applied = schema::applied(&found, known, table)?;
    apply(connection, table, known, applied).await.map_err(told)?;
    fits(connection, table, place, columns).await
}

/// Returns the status of the schema.
pub(super) async fn status(
    connection: &mut MySqlConnection,
    table: &Table,
    place: &ErrorContext,
    known: &[Migration],
    columns: &[&str],
) -> Result<SchemaStatus, StoreError> {
    let told = |error| place.error::<MySqlDialect>(Phase::Connecting, error);
    let read = async {
        let found = inspect(connection, table).await.map_err(told)?;
        let fits = layout(connection, table, columns).await.map_err(told)?;
        Ok(schema::status(&found, fits, known, table, &BOOKKEEPING))
    };
    timeout(MIGRATION, read).await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?
}

/// Returns the status of the schema of an outbox or a delay table, by a connection outside of the pool.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(super) async fn status_by(
    pool: &MySqlPool,
    table: &Table,
    known: &[Migration],
    columns: &[&str],
) -> Result<SchemaStatus, StoreError> {
    let place = place(pool, table.name());
    let connection = pool.connect_options().connect().await;
    let mut connection = connection.map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))?;
    let status = status(&mut connection, &table.clone().in_backticks(), &place, known, columns).await?;
    // The connection ends even if its closing fails.
    let _ = connection.close().await;
    Ok(status)
}

/// Returns the names of a pool's database for errors.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(super) fn place(pool: &MySqlPool, table: &str) -> ErrorContext {
    let connections = pool.options().get_max_connections();
    let options = pool.connect_options();
    let (database, socket) = (shown(&options), options.get_socket().is_some());
    ErrorContext { database, table: table.into(), connections, read_only: false, socket }
}

/// Reads the applied migrations before the table: if another process migrates, the table exists when its migration is
/// recorded.
async fn inspect(connection: &mut MySqlConnection, table: &Table) -> Result<Found, sqlx::Error> {
    let mut noted = notes(connection, table).await?;
    let records = is_there(connection, table, table.name()).await?;
    if records && noted.is_none() {
        // Both may have been created since.
        noted = notes(connection, table).await?;
    }
    Ok(match (records, noted) {
        (false, None) => Found::Nothing,
        (true, None) => Found::Foreign,
        // The table was created, recorded and dropped since. Without a row, the migration has only begun.
        (false, Some(rows)) if !rows.is_empty() => Found::Dropped,
        (_, Some(rows)) => Found::Applied(rows),
    })
}

/// Returns the versions and checksums of the applied migrations, or `None` without their table.
async fn notes(connection: &mut MySqlConnection, table: &Table) -> Result<Option<Vec<(i64, Vec<u8>)>>, sqlx::Error> {
    if !is_there(connection, table, &table.migrations()).await? {
        return Ok(None);
    }
    let text = format!("SELECT version, checksum FROM {} ORDER BY version", table.quoted_migrations());
    let rows = sqlx::query(AssertSqlSafe(text)).fetch_all(connection).await?;
    let read = |row: &MySqlRow| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map(Some)
}

async fn is_there(connection: &mut MySqlConnection, table: &Table, name: &str) -> Result<bool, sqlx::Error> {
    let text = "SELECT CAST(count(*) AS SIGNED) FROM information_schema.tables \
                WHERE table_schema = coalesce(?, database()) AND table_name = ?";
    let count = sqlx::query(text).bind(table.schema().map(str::to_owned)).bind(name.to_owned());
    Ok(count.fetch_one(connection).await?.try_get::<i64, _>(0)? > 0)
}

async fn apply(
    connection: &mut MySqlConnection,
    table: &Table,
    known: &[Migration],
    applied: usize,
) -> Result<(), sqlx::Error> {
    for step in schema::steps(known, table, &BOOKKEEPING).iter().skip(applied) {
        for statement in step.statements() {
            sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Checks that the table has every column that the statements name.
async fn fits(
    connection: &mut MySqlConnection,
    table: &Table,
    place: &ErrorContext,
    expected: &[&str],
) -> Result<(), StoreError> {
    let fits = layout(connection, table, expected).await;
    match fits.map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))? {
        true => Ok(()),
        false => Err(schema::foreign(table).into()),
    }
}

/// Returns true if the table has every column that the statements name.
async fn layout(connection: &mut MySqlConnection, table: &Table, expected: &[&str]) -> Result<bool, sqlx::Error> {
    let text = "SELECT CAST(column_name AS CHAR) FROM information_schema.columns \
                WHERE table_schema = coalesce(?, database()) AND table_name = ?";
    let columns = sqlx::query(text).bind(table.schema().map(str::to_owned)).bind(table.name().to_owned());
    let columns = columns.fetch_all(connection).await?;
    let there = |name: &&str| columns.iter().any(|row| row.try_get::<&str, _>(0).is_ok_and(|found| found == *name));
    Ok(expected.iter().all(there))
}
