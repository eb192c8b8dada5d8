//! The outbox's tables on SQLite.
use idempotent_core::StoreError;
use sqlx::SqlitePool;

use super::migrate;
use crate::outbox::COLUMNS;
use crate::schema::{self, Migration, SchemaStatus, SchemaStep};
use crate::table::Table;

/// Finished records (sent or settled) are only in the indexes by number, id and status, so their number does not slow
/// the relay down.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "message stubs",
        sql: "CREATE TABLE {table} (
 seq INTEGER PRIMARY KEY AUTOINCREMENT,
 id BLOB NOT NULL UNIQUE,
 topic BLOB NOT NULL,
 business_key BLOB,
 aggregate BLOB,
 headers BLOB NOT NULL,
 body BLOB NOT NULL,
 digest BLOB NOT NULL,
 nonce BLOB NOT NULL,
 status INTEGER NOT NULL DEFAULT 0,
 sends INTEGER NOT NULL DEFAULT 0,
 failures INTEGER NOT NULL DEFAULT 0,
 queue BLOB,
 place BLOB,
 due_at INTEGER,
 holds BLOB,
 created_at INTEGER NOT NULL,
 sent_at INTEGER,
 settled_at INTEGER,
 last_error BLOB,
 lease_until INTEGER NOT NULL DEFAULT 0,
 lease_by BLOB
) STRICT;
CREATE INDEX {name}_due ON {table} (due_at, seq) WHERE due_at IS NOT NULL;
CREATE INDEX {name}_holds ON {table} (holds, seq) WHERE holds IS NOT NULL;
CREATE INDEX {name}_status ON {table} (status, seq)",
    },
    Migration {
        name: "message log",
        sql: "CREATE TABLE {log} (
 kind INTEGER NOT NULL,
 id BLOB NOT NULL,
 run BLOB NOT NULL,
 place BLOB,
 logged_at INTEGER NOT NULL,
 PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID",
    },
    Migration {
        name: "audit",
        sql: "CREATE TABLE {audit} (
 seq INTEGER PRIMARY KEY AUTOINCREMENT,
 id BLOB NOT NULL,
 done_by BLOB NOT NULL,
 action BLOB NOT NULL,
 reason BLOB NOT NULL,
 done_at INTEGER NOT NULL
) STRICT;
CREATE INDEX {name}_audit_id ON {audit} (id, seq)",
    },
];

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
