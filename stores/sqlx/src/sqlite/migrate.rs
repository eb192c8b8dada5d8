//! Migration of the schema. sqlx's migrator is not used, because it takes no lock on SQLite: two processes that start
//! together would both apply a migration.
use idempotent_core::StoreError;
#[cfg(any(feature = "delay", feature = "outbox"))]
use idempotent_core::StoreErrorKind;
#[cfg(any(feature = "delay", feature = "outbox"))]
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Sqlite};

use super::error::ErrorContext;
use crate::catalog::{CatalogError, KnownSchema, apply, current_status, fits, inspect};
use crate::row::COLUMNS;
use crate::schema::{self, Migration, SchemaStatus};
use crate::sql_database::CatalogSql;
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

/// The tables of a store.
pub(super) const KNOWN: KnownSchema<'static> =
    KnownSchema { migrations: MIGRATIONS, columns: &COLUMNS, skips_locked: false };

/// The SQL texts about tables and applied migrations.
pub(crate) const CATALOG: CatalogSql = CatalogSql {
    columns: "(version INTEGER PRIMARY KEY, checksum BLOB NOT NULL, applied_at INTEGER NOT NULL) STRICT",
    row: "(version, checksum, applied_at) VALUES ({version}, x'{checksum}', unixepoch() * 1000000)",
    current_schemas: "",
    count_tables: "SELECT count(*) FROM sqlite_schema WHERE name='{name}'",
    count_columns: "SELECT count(*) FROM pragma_table_info('{name}') WHERE name IN ({columns})",
};

/// Applies missing migrations in one transaction, so an interrupted migration changes nothing. A second process waits
/// at the start of its transaction, and then finds nothing to do.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    table: &Table,
    place: &ErrorContext,
    create: bool,
    known: &KnownSchema<'_>,
) -> Result<(), StoreError> {
    let migrated: Result<(), CatalogError> = async {
        // Taken even where nothing is to be done: a file that cannot be written is better refused now.
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let found = inspect::<Sqlite>(&mut transaction, table).await?;
        if schema::is_due(&found, known.migrations, table, create)? {
            let applied = schema::applied(&found, known.migrations, table)?;
            apply::<Sqlite>(&mut transaction, &known.steps::<Sqlite>(table)[applied..]).await?;
        }
        fits::<Sqlite>(&mut transaction, table, known).await?;
        Ok(transaction.commit().await?)
    }
    .await;
    migrated.map_err(|error| error.told(|error| place.error(error)))
}

/// Checks the schema of a file that is open for reading only.
pub(super) async fn check(
    connection: &mut SqliteConnection,
    table: &Table,
    place: &ErrorContext,
) -> Result<(), StoreError> {
    let checked: Result<(), CatalogError> = async {
        let mut transaction = connection.begin().await?;
        let found = inspect::<Sqlite>(&mut transaction, table).await?;
        schema::is_due(&found, KNOWN.migrations, table, false)?;
        fits::<Sqlite>(&mut transaction, table, &KNOWN).await
    }
    .await;
    checked.map_err(|error| error.told(|error| place.error(error)))
}

/// Returns the status of the schema, from one snapshot of the file.
pub(super) async fn status(
    connection: &mut SqliteConnection,
    table: &Table,
    place: &ErrorContext,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, StoreError> {
    let mut transaction = connection.begin().await.map_err(|error| place.error(error))?;
    current_status::<Sqlite>(&mut transaction, table, known).await.map_err(|error| place.error(error))
}

/// Checks the tables of an outbox or a delay table, or creates them with `create`.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) async fn open_by(
    pool: &SqlitePool,
    table: Table,
    create: bool,
    known: &KnownSchema<'_>,
) -> Result<Table, StoreError> {
    let place = place(pool, table.name());
    // A connection of the pool, since another one would not see a database in memory. A dropped transaction is rolled back.
    let mut connection = pool.acquire().await.map_err(|error| place.error(error))?;
    migrate(&mut connection, &table, &place, create, known).await?;
    Ok(table)
}

/// Returns the status of the schema of an outbox or a delay table, by a connection of the pool, which alone sees a database
/// in memory.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) async fn status_by(
    pool: &SqlitePool,
    table: &Table,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, StoreError> {
    let place = place(pool, table.name());
    let mut connection = pool.acquire().await.map_err(|error| place.error(error))?;
    status(&mut connection, table, &place, known).await
}

/// Converts an error of an outbox or a delay table. `sent`: the statement may have been executed.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) fn error_of(pool: &SqlitePool, table: &str, sent: bool, error: sqlx::Error) -> StoreError {
    let error = place(pool, table).error(error);
    if !sent && error.kind() == StoreErrorKind::Ambiguous {
        return StoreError::new(StoreErrorKind::NotApplied).because(error.to_string()).with_source(error);
    }
    error
}

/// Returns the names of a pool's database for errors.
#[cfg(any(feature = "delay", feature = "outbox"))]
fn place(pool: &SqlitePool, table: &str) -> ErrorContext {
    ErrorContext {
        file: pool.connect_options().get_filename().display().to_string(),
        in_memory: false,
        table: table.into(),
        // For a text only.
        busy_timeout: std::time::Duration::from_secs(5),
        read_only: false,
    }
}
