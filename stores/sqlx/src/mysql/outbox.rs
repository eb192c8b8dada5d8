//! The outbox's tables on MariaDB and MySQL.
use idempotent_core::StoreError;
use sqlx::{ConnectOptions, Connection, MySqlPool};

use super::dialect::MySqlDialect;
use super::migrate;
use super::open::MIGRATION;
use crate::outbox::COLUMNS;
use crate::schema::{self, Migration, SchemaStatus, SchemaStep};
use crate::server::Phase;
use crate::table::Table;

/// Finished records (sent or settled) have null in the columns of the indexes that the relay searches, and so do not
/// slow it down.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "message stubs",
        sql: "CREATE TABLE IF NOT EXISTS {table} (
 seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
 id varbinary(255) NOT NULL,
 topic varbinary(255) NOT NULL,
 business_key varbinary(255),
 aggregate varbinary(255),
 headers longblob NOT NULL,
 body longblob NOT NULL,
 digest binary(32) NOT NULL,
 nonce binary(16) NOT NULL,
 status bigint NOT NULL DEFAULT 0,
 sends bigint NOT NULL DEFAULT 0,
 failures bigint NOT NULL DEFAULT 0,
 queue varbinary(300),
 place varbinary(16),
 due_at bigint,
 holds varbinary(255),
 created_at bigint NOT NULL,
 sent_at bigint,
 settled_at bigint,
 last_error longblob,
 lease_until bigint NOT NULL DEFAULT 0,
 lease_by varbinary(16),
 UNIQUE KEY by_id (id),
 KEY by_due (due_at, seq),
 KEY by_holds (holds, seq),
 KEY by_status (status, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    },
    Migration {
        name: "message log",
        sql: "CREATE TABLE IF NOT EXISTS {log} (
 kind bigint NOT NULL,
 id varbinary(300) NOT NULL,
 run varbinary(16) NOT NULL,
 place varbinary(16),
 logged_at bigint NOT NULL,
 PRIMARY KEY (kind, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    },
    Migration {
        name: "audit",
        sql: "CREATE TABLE IF NOT EXISTS {audit} (
 seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
 id varbinary(255) NOT NULL,
 done_by varbinary(255) NOT NULL,
 action varbinary(20) NOT NULL,
 reason longblob NOT NULL,
 done_at bigint NOT NULL,
 KEY by_id (id, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    },
];

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
    let options = pool.connect_options();
    let place = migrate::place(pool, table.name());
    // Not one of the pool's: where this future is dropped, its connection goes, and with it the lock of migrations.
    let mut connection =
        options.connect().await.map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))?;
    let table = table.clone().in_backticks();
    let migrated = migrate::migrate_to(&mut connection, &table, &place, create, MIGRATIONS, &COLUMNS);
    let migrated = tokio::time::timeout(MIGRATION, migrated);
    migrated.await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))??;
    let database = migrate::database(&mut connection).await;
    // Whether it was said or not, it ends here.
    let _ = connection.close().await;
    Ok(Some(database.map_err(|error| place.error::<MySqlDialect>(Phase::Connecting, error))?))
}
