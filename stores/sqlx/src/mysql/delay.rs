//! The table of delayed work on MariaDB and MySQL.
use idempotent_core::StoreError;
use sqlx::{ConnectOptions, Connection, MySqlPool};

use super::dialect::MySqlDialect;
use super::migrate;
use super::open::MIGRATION;
use super::server_version::ServerVersion;
use crate::delay::COLUMNS;
use crate::schema::{self, Migration, SchemaStatus, SchemaStep};
use crate::server::Phase;
use crate::table::Table;

/// `due_at` is the time from which a row may be taken: the end of its visibility timeout if the row is in flight, or
/// null if the row is dead. `live` is the key of a row that is not dead, so that no second live row has the same key.
const MIGRATIONS: &[Migration] = &[Migration {
    name: "delayed work",
    sql: "CREATE TABLE IF NOT EXISTS {table} (
 seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
 id varbinary(255) NOT NULL,
 live varbinary(255),
 headers longblob NOT NULL,
 body longblob NOT NULL,
 scheduled_at bigint NOT NULL,
 due_at bigint,
 holder varbinary(16),
 taken bigint NOT NULL DEFAULT 0,
 lost bigint NOT NULL DEFAULT 0,
 attempt bigint NOT NULL DEFAULT 1,
 first_at bigint,
 deaths bigint NOT NULL DEFAULT 0,
 letter longblob,
 reason longblob,
 dead_at bigint,
 UNIQUE KEY by_live (live),
 KEY by_due (due_at, seq),
 KEY by_dead (dead_at, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
}];

/// The first MariaDB that passes over rows which others have locked; each MySQL that is new enough for us does.
const SKIPS_LOCKED: (u32, u32) = (10, 6);

/// Returns the SQL text of all migrations.
pub(crate) fn steps(table: &Table) -> Vec<SchemaStep> {
    schema::steps(MIGRATIONS, &table.clone().in_backticks(), &migrate::BOOKKEEPING)
}

/// Returns the status of the schema.
pub(crate) async fn status(pool: &MySqlPool, table: &Table) -> Result<SchemaStatus, StoreError> {
    migrate::status_by(pool, table, MIGRATIONS, &COLUMNS).await
}

/// Checks the tables, or creates them with `create`. Returns the schema or database in which they are, if there are several.
pub(crate) async fn migrate(pool: &MySqlPool, table: &Table, create: bool) -> Result<Option<String>, StoreError> {
    let place = migrate::place(pool, table.name());
    // Not one of the pool's: where this future is dropped, its connection goes, and with it the lock of migrations.
    let connection = pool.connect_options().connect().await;
    let mut connection = connection.map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))?;
    let (version, server) = ServerVersion::of(&mut connection)
        .await
        .map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))?;
    server.check_for(&version, SKIPS_LOCKED)?;
    let table = table.clone().in_backticks();
    let migrated = migrate::migrate_to(&mut connection, &table, &place, create, MIGRATIONS, &COLUMNS);
    let migrated = tokio::time::timeout(MIGRATION, migrated);
    migrated.await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))??;
    let database = migrate::database(&mut connection).await;
    // Whether it was said or not, it ends here.
    let _ = connection.close().await;
    Ok(Some(database.map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))?))
}

/// Converts an error. `sent`: the statement may have been executed.
pub(crate) fn told(pool: &MySqlPool, table: &str, sent: bool, error: sqlx::Error) -> StoreError {
    migrate::place(pool, table).error::<MySqlDialect>(if sent { Phase::Executing } else { Phase::Connecting }, error)
}
