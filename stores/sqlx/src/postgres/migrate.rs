//! Migration of the schema. sqlx's migrator is not used, because its bookkeeping belongs to the application.
use std::time::Duration;

use idempotent_core::StoreError;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Postgres};
#[cfg(any(feature = "delay", feature = "outbox"))]
use sqlx::{ConnectOptions, PgPool};
use tokio::time::timeout;

use super::dialect::PostgresDialect;
use super::partitions::PartitionCount;
#[cfg(any(feature = "delay", feature = "outbox"))]
use super::url::shown;
use crate::catalog::{CatalogError, KnownSchema, apply, current_status, fits, inspect};
use crate::row::COLUMNS;
use crate::schema::{self, Migration, SchemaProblem, SchemaStatus, SchemaStep};
use crate::server::{ErrorContext, Phase};
use crate::sql_database::CatalogSql;
use crate::table::Table;

/// The time limit of a migration, which may wait for the migration of another process.
pub(super) const MIGRATION: Duration = Duration::from_secs(60);

/// All migrations. Texts are bytes, because a text of PostgreSQL cannot contain every character. Pages are not filled and
/// `expires_at` has no index, so that a completion stays on its page and changes no index.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "record table",
        sql: "CREATE TABLE {table} (
 id bytea NOT NULL PRIMARY KEY,
 v smallint NOT NULL,
 name bytea NOT NULL,
 state smallint NOT NULL,
 owner bytea,
 fencing bigint NOT NULL,
 attempt bigint NOT NULL,
 until_at bigint NOT NULL,
 taken_over bigint,
 fingerprint bytea,
 expires_at bigint NOT NULL,
 first_seen bigint NOT NULL,
 updated_at bigint NOT NULL,
 value bytea,
 error bytea,
 display bytea
) WITH (fillfactor=80)",
    },
    Migration {
        name: "steps of runs",
        // Steps of a store that was dropped before are harmless: they belong to no record.
        sql: "CREATE TABLE IF NOT EXISTS {steps} (
 id bytea NOT NULL,
 name bytea NOT NULL,
 begun bigint NOT NULL,
 place bigint NOT NULL,
 state smallint NOT NULL,
 value bytea,
 PRIMARY KEY (id, name)
)",
    },
    Migration {
        name: "order tables of streams",
        sql: "CREATE TABLE IF NOT EXISTS {lines} (
 id bytea NOT NULL PRIMARY KEY,
 line bytea NOT NULL,
 until_at bigint NOT NULL
) WITH (fillfactor=80)",
    },
];

/// The tables of a store.
pub(super) const KNOWN: KnownSchema<'static> =
    KnownSchema { migrations: MIGRATIONS, columns: &COLUMNS, skips_locked: false };

/// The SQL texts about tables and applied migrations. `to_regclass` caches a missing table, even while another process creates the
/// table under a lock that this process waits for.
pub(crate) const CATALOG: CatalogSql = CatalogSql {
    columns: "(version bigint PRIMARY KEY, checksum bytea NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
    row: "(version, checksum) VALUES ({version}, decode('{checksum}', 'hex'))",
    current_schemas: "SELECT unnest(current_schemas(false))",
    count_tables: "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                   WHERE c.relname = '{name}' AND n.nspname IN ({schema})",
    count_columns: "SELECT count(DISTINCT a.attname) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid \
                    JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = '{name}' AND n.nspname IN ({schema}) \
                    AND a.attnum > 0 AND NOT a.attisdropped AND a.attname IN ({columns})",
};

/// The number of partitions of a table, if the table exists.
const COUNT_PARTITIONS: &str = "SELECT (SELECT count(*) FROM pg_inherits AS i WHERE i.inhparent = c.oid) \
     FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE c.relname = '{name}' AND n.nspname IN ({schema})";
/// The schema of a table.
const SCHEMA_OF: &str = "SELECT n.nspname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE c.relname = '{name}' AND n.nspname IN ({schema}) \
     ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1";

/// The advisory lock of migrations: "idempote" as a number.
const LOCK: i64 = 0x6964_656d_706f_7465;

/// Applies missing migrations in one transaction, so an interrupted migration changes nothing. A second process waits
/// for the lock and then finds nothing to do. If no migration is missing, nothing is locked or written.
///
/// New tables get the partitions that are set, and existing ones must have as many.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    table: &Table,
    place: &ErrorContext,
    create: bool,
    known: &KnownSchema<'_>,
    partitions: Option<PartitionCount>,
) -> Result<(), StoreError> {
    let migrate = async {
        let found = inspect::<Postgres>(connection, table).await?;
        if !schema::is_due(&found, known.migrations, table, create)? {
            fits::<Postgres>(connection, table, known).await?;
            return has_partitions(connection, table, partitions).await;
        }
        let mut transaction = connection.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *transaction).await?;
        // Another process may have migrated meanwhile.
        let found = inspect::<Postgres>(&mut transaction, table).await?;
        let applied = schema::applied(&found, known.migrations, table)?;
        // Before the first statement: a table of steps outlives a record table that was dropped.
        has_partitions(&mut transaction, table, partitions).await?;
        apply::<Postgres>(&mut transaction, &steps(table, known, partitions)[applied..]).await?;
        fits::<Postgres>(&mut transaction, table, known).await?;
        Ok(transaction.commit().await?)
    };
    let migrated: Result<(), CatalogError> =
        timeout(MIGRATION, migrate).await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?;
    migrated.map_err(|error| error.told(|error| place.error::<PostgresDialect>(Phase::Connecting, error)))
}

/// Returns all migrations as SQL text.
pub(super) fn steps(table: &Table, known: &KnownSchema<'_>, partitions: Option<PartitionCount>) -> Vec<SchemaStep> {
    let steps = known.steps::<Postgres>(table);
    match partitions {
        Some(partitions) => partitions.divide(steps, table),
        None => steps,
    }
}

/// Returns the status of the schema.
pub(super) async fn status(
    connection: &mut PgConnection,
    table: &Table,
    place: &ErrorContext,
    known: &KnownSchema<'_>,
    partitions: Option<PartitionCount>,
) -> Result<SchemaStatus, StoreError> {
    let read = async {
        let mut status = current_status::<Postgres>(connection, table, known).await?;
        let Some(partitions) = partitions else { return Ok(status) };
        if status.problem.is_none() {
            status.problem = other_partitions(connection, table, partitions).await?;
        }
        status.pending = match status.problem {
            Some(_) => Vec::new(),
            None => partitions.divide(status.pending, table),
        };
        Ok(status)
    };
    let status = timeout(MIGRATION, read).await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?;
    status.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))
}

/// Checks the tables of an outbox or a delay table, or creates them with `create`. Returns the table in its schema.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) async fn open_by(
    pool: &PgPool,
    table: Table,
    create: bool,
    known: &KnownSchema<'_>,
) -> Result<Table, StoreError> {
    let place = place(pool, table.name());
    let told = |error| place.error::<PostgresDialect>(Phase::Connecting, error);
    let options = pool.connect_options();
    // A connection outside of the pool: if this future is dropped, the connection closes, and the server rolls back.
    let mut connection = options.connect().await.map_err(told)?;
    super::pooler::detect(&mut connection, &options, &place).await?;
    migrate(&mut connection, &table, &place, create, known, None).await?;
    let schema = schema_of(&mut connection, &table).await;
    // The connection ends even if its closing fails.
    let _ = connection.close().await;
    Ok(table.found_in(&schema.map_err(told)?))
}

/// Returns the status of the schema of an outbox or a delay table, by a connection outside of the pool.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) async fn status_by(
    pool: &PgPool,
    table: &Table,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, StoreError> {
    let connection = pool.connect_options().connect().await;
    let mut connection = connection.map_err(|error| error_of(pool, table.name(), false, error))?;
    let status = status(&mut connection, table, &place(pool, table.name()), known, None).await?;
    // The connection ends even if its closing fails.
    let _ = connection.close().await;
    Ok(status)
}

/// Converts an error of an outbox or a delay table. `sent`: the statement may have been executed.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) fn error_of(pool: &PgPool, table: &str, sent: bool, error: sqlx::Error) -> StoreError {
    place(pool, table).error::<PostgresDialect>(if sent { Phase::Executing } else { Phase::Connecting }, error)
}

/// Returns the names of a pool's database for errors.
#[cfg(any(feature = "delay", feature = "outbox"))]
fn place(pool: &PgPool, table: &str) -> ErrorContext {
    let connections = pool.options().get_max_connections();
    let options = pool.connect_options();
    let (database, socket) = (shown(&options), options.get_socket().is_some());
    ErrorContext { database, table: table.into(), connections, read_only: false, socket }
}

pub(super) async fn schema_of(connection: &mut PgConnection, table: &Table) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(CATALOG.about(SCHEMA_OF, table, table.name()))).fetch_one(connection).await
}

/// Returns the problem of an existing table that has another number of partitions.
async fn other_partitions(
    connection: &mut PgConnection,
    table: &Table,
    partitions: PartitionCount,
) -> Result<Option<SchemaProblem>, sqlx::Error> {
    for name in [table.name().to_owned(), format!("{}_steps", table.name())] {
        let count = sqlx::query_scalar(AssertSqlSafe(CATALOG.about(COUNT_PARTITIONS, table, &name)));
        let count: Option<i64> = count.fetch_optional(&mut *connection).await?;
        if let Some(problem) = count.and_then(|count| partitions.problem(&name, count)) {
            return Ok(Some(problem));
        }
    }
    Ok(None)
}

/// Checks that existing tables have the partitions that are set, if any are set.
async fn has_partitions(
    connection: &mut PgConnection,
    table: &Table,
    partitions: Option<PartitionCount>,
) -> Result<(), CatalogError> {
    let Some(partitions) = partitions else { return Ok(()) };
    match other_partitions(connection, table, partitions).await? {
        Some(problem) => Err(problem.into()),
        None => Ok(()),
    }
}
