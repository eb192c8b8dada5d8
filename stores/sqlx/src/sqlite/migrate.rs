//! Migration of the schema. sqlx's migrator is not used, because it takes no lock on SQLite: two processes that start
//! together would both apply a migration.
use idempotent_core::StoreError;
#[cfg(any(feature = "delay", feature = "outbox"))]
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

use super::error::ErrorContext;
use crate::row::COLUMNS;
use crate::schema::{self, BookkeepingSql, Found, Migration, SchemaStatus};
use crate::table::Table;

/// All migrations. The tables are STRICT, so that columns have their declared types, and WITHOUT ROWID, so that a lookup
/// searches one tree. `expires_at` has no index, which would add a second write to each write; the purge scans instead.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "record table",
        sql: "CREATE TABLE {table} (
 id BLOB NOT NULL PRIMARY KEY,
 v INTEGER NOT NULL,
 name TEXT NOT NULL,
 state INTEGER NOT NULL,
 owner BLOB,
 fencing INTEGER NOT NULL,
 attempt INTEGER NOT NULL,
 until_at INTEGER NOT NULL,
 taken_over INTEGER,
 fingerprint BLOB,
 expires_at INTEGER NOT NULL,
 first_seen INTEGER NOT NULL,
 updated_at INTEGER NOT NULL,
 value BLOB,
 error TEXT,
 display TEXT
) STRICT, WITHOUT ROWID",
    },
    Migration {
        name: "steps of runs",
        // Steps of a store that was dropped before are harmless: they belong to no record.
        sql: "CREATE TABLE IF NOT EXISTS {steps} (
 id BLOB NOT NULL,
 name BLOB NOT NULL,
 begun INTEGER NOT NULL,
 place INTEGER NOT NULL,
 state INTEGER NOT NULL,
 value BLOB,
 PRIMARY KEY (id, name)
) STRICT, WITHOUT ROWID",
    },
    Migration {
        name: "order tables of streams",
        sql: "CREATE TABLE IF NOT EXISTS {lines} (
 id BLOB NOT NULL PRIMARY KEY,
 line BLOB NOT NULL,
 until_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID",
    },
];

/// The SQL texts that record applied migrations.
pub(super) const BOOKKEEPING: BookkeepingSql = BookkeepingSql {
    columns: "(version INTEGER PRIMARY KEY, checksum BLOB NOT NULL, applied_at INTEGER NOT NULL) STRICT",
    row: "(version, checksum, applied_at) VALUES ({version}, x'{checksum}', unixepoch() * 1000000)",
};

/// Applies missing migrations in one transaction, so an interrupted migration changes nothing. A second process waits
/// at the start of its transaction, and then finds nothing to do.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    table: &Table,
    place: &ErrorContext,
    create: bool,
    known: &[Migration],
) -> Result<(), StoreError> {
    migrate_to(connection, table, place, create, known, &COLUMNS).await
}

/// Applies missing migrations to a table with other columns.
pub(super) async fn migrate_to(
    connection: &mut SqliteConnection,
    table: &Table,
    place: &ErrorContext,
    create: bool,
    known: &[Migration],
    columns: &[&str],
) -> Result<(), StoreError> {
    // Taken even where nothing is to be done: a file that cannot be written is better refused now.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(|error| place.error(error))?;
    let found = inspect(&mut transaction, table).await.map_err(|error| place.error(error))?;
    let applied = schema::applied(&found, known, table)?;
    if applied < known.len() {
        if !create {
            return Err(schema::needed(&found, applied, known, table));
        }
        apply(&mut transaction, table, known, applied).await.map_err(|error| place.error(error))?;
    }
    let fits = layout(&mut transaction, table, columns).await.map_err(|error| place.error(error))?;
    if !fits {
        return Err(schema::foreign(table).into());
    }
    transaction.commit().await.map_err(|error| place.error(error))
}

/// Checks the schema of a file that is open for reading only.
pub(super) async fn check(
    connection: &mut SqliteConnection,
    table: &Table,
    place: &ErrorContext,
) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await.map_err(|error| place.error(error))?;
    let found = inspect(&mut transaction, table).await.map_err(|error| place.error(error))?;
    schema::is_due(&found, MIGRATIONS, table, false)?;
    let fits = layout(&mut transaction, table, &COLUMNS).await.map_err(|error| place.error(error))?;
    if fits { Ok(()) } else { Err(schema::foreign(table).into()) }
}

/// Returns the status of the schema, from one snapshot of the file.
pub(super) async fn status(
    connection: &mut SqliteConnection,
    table: &Table,
    place: &ErrorContext,
    known: &[Migration],
    columns: &[&str],
) -> Result<SchemaStatus, StoreError> {
    let mut transaction = connection.begin().await.map_err(|error| place.error(error))?;
    let found = inspect(&mut transaction, table).await.map_err(|error| place.error(error))?;
    let fits = layout(&mut transaction, table, columns).await.map_err(|error| place.error(error))?;
    Ok(schema::status(&found, fits, known, table, &BOOKKEEPING))
}

/// Returns the status of the schema of an outbox or a delay table, by a connection of the pool, which alone sees a database
/// in memory.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(super) async fn status_by(
    pool: &SqlitePool,
    table: &Table,
    known: &[Migration],
    columns: &[&str],
) -> Result<SchemaStatus, StoreError> {
    let place = place(pool, table.name());
    let mut connection = pool.acquire().await.map_err(|error| place.error(error))?;
    status(&mut connection, table, &place, known, columns).await
}

/// Returns the names of a pool's database for errors.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(super) fn place(pool: &SqlitePool, table: &str) -> ErrorContext {
    ErrorContext {
        file: pool.connect_options().get_filename().display().to_string(),
        in_memory: false,
        table: table.into(),
        // For a text only.
        busy_timeout: std::time::Duration::from_secs(5),
        read_only: false,
    }
}

async fn inspect(connection: &mut SqliteConnection, table: &Table) -> Result<Found, sqlx::Error> {
    let names = sqlx::query("SELECT name FROM sqlite_schema WHERE name IN (?1, ?2)")
        .bind(table.name().to_owned())
        .bind(table.migrations());
    let names = names.fetch_all(&mut *connection).await?;
    let there = |name: &str| names.iter().any(|row| row.try_get::<&str, _>(0).is_ok_and(|found| found == name));
    match (there(table.name()), there(&table.migrations())) {
        (false, false) => return Ok(Found::Nothing),
        (true, false) => return Ok(Found::Foreign),
        (_, true) => {}
    }
    let text = format!("SELECT version, checksum FROM \"{}\" ORDER BY version", table.migrations());
    let rows = sqlx::query(AssertSqlSafe(text)).fetch_all(&mut *connection).await?;
    let read = |row: &sqlx::sqlite::SqliteRow| Ok::<_, sqlx::Error>((row.try_get(0)?, row.try_get(1)?));
    let rows = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    match (there(table.name()), rows.is_empty()) {
        // The table was created, recorded and dropped since.
        (false, false) => Ok(Found::Dropped),
        (true, true) => Ok(Found::Foreign),
        _ => Ok(Found::Applied(rows)),
    }
}

async fn apply(
    connection: &mut SqliteConnection,
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
async fn layout(connection: &mut SqliteConnection, table: &Table, expected: &[&str]) -> Result<bool, sqlx::Error> {
    let columns = sqlx::query("SELECT name FROM pragma_table_info(?1)").bind(table.name().to_owned());
    let columns = columns.fetch_all(connection).await?;
    let there = |name: &&str| columns.iter().any(|row| row.try_get::<&str, _>(0).is_ok_and(|found| found == *name));
    Ok(expected.iter().all(there))
}
