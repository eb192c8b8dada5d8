//! The table of delayed work on SQLite.
use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::SqlitePool;

use super::migrate;
use crate::delay::COLUMNS;
use crate::schema::{self, Migration, SchemaStatus, SchemaStep};
use crate::table::Table;

/// `due_at` is the time from which a row may be taken: the end of its visibility timeout if the row is in flight, or
/// null if the row is dead. `live` is the key of a row that is not dead, so that no second live row has the same key.
const MIGRATIONS: &[Migration] = &[Migration {
    name: "delayed work",
    sql: "CREATE TABLE {table} (
 seq INTEGER PRIMARY KEY AUTOINCREMENT,
 id BLOB NOT NULL,
 live BLOB UNIQUE,
 headers BLOB NOT NULL,
 body BLOB NOT NULL,
 scheduled_at INTEGER NOT NULL,
 due_at INTEGER,
 holder BLOB,
 taken INTEGER NOT NULL DEFAULT 0,
 lost INTEGER NOT NULL DEFAULT 0,
 attempt INTEGER NOT NULL DEFAULT 1,
 first_at INTEGER,
 deaths INTEGER NOT NULL DEFAULT 0,
 letter BLOB,
 reason BLOB,
 dead_at INTEGER
) STRICT;
CREATE INDEX {name}_due ON {table} (due_at, seq) WHERE due_at IS NOT NULL;
CREATE INDEX {name}_dead ON {table} (dead_at, seq) WHERE dead_at IS NOT NULL",
}];

/// Returns the SQL text of all migrations.
pub(crate) fn steps(table: &Table) -> Vec<SchemaStep> {
    schema::steps(MIGRATIONS, table, &migrate::BOOKKEEPING)
}

/// Returns the status of the schema.
pub(crate) async fn status(pool: &SqlitePool, table: &Table) -> Result<SchemaStatus, StoreError> {
    migrate::status_by(pool, table, MIGRATIONS, &COLUMNS).await
}

/// Checks the tables, or creates them with `create`. Returns the schema or database in which they are, if there are several.
pub(crate) async fn migrate(pool: &SqlitePool, table: &Table, create: bool) -> Result<Option<String>, StoreError> {
    let place = migrate::place(pool, table.name());
    // A connection of the pool, since another one would not see a database in memory. A dropped transaction is rolled back.
    let mut connection = pool.acquire().await.map_err(|error| place.error(error))?;
    migrate::migrate_to(&mut connection, table, &place, create, MIGRATIONS, &COLUMNS).await?;
    Ok(None)
}

/// Converts an error. `sent`: the statement may have been executed.
pub(crate) fn told(pool: &SqlitePool, table: &str, sent: bool, error: sqlx::Error) -> StoreError {
    let error = migrate::place(pool, table).error(error);
    if !sent && error.kind() == StoreErrorKind::Ambiguous {
        return StoreError::new(StoreErrorKind::NotApplied).because(error.to_string()).with_source(error);
    }
    error
}
