//! Migration of the schema. sqlx's migrator is not used, because its bookkeeping belongs to the application.
use std::time::Duration;

use idempotent_core::StoreError;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Row};
#[cfg(any(feature = "delay", feature = "outbox"))]
use sqlx::{ConnectOptions, PgPool};
use tokio::time::timeout;

use super::dialect::PostgresDialect;
use super::partitions::PartitionCount;
#[cfg(any(feature = "delay", feature = "outbox"))]
use super::url::shown;
use crate::schema::{self, BookkeepingSql, Found, Migration, SchemaProblem, SchemaStatus, SchemaStep};
use crate::server::{ErrorContext, Phase};
use crate::table::Table;

/// The time limit of a migration, which may wait for the migration of another process.
pub(super) const MIGRATION: Duration = Duration::from_secs(60);

/// All migrations. Texts are bytes, because a text of PostgreSQL cannot contain every character. Pages are not filled and
/// `expires_at` has no index, so that a completion stays on its page and changes no index.
pub(super) const MIGRATIONS: &[Migration] = &[
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

/// The SQL texts that record applied migrations.
pub(super) const BOOKKEEPING: BookkeepingSql = BookkeepingSql {
    columns: "(version bigint PRIMARY KEY, checksum bytea NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
    row: "(version, checksum) VALUES ({version}, decode('{checksum}', 'hex'))",
};

/// The advisory lock of migrations: "idempote" as a number.
const LOCK: i64 = 0x6964_656d_706f_7465;

/// The form of the tables that this version creates.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownSchema<'a> {
    /// All migrations.
    pub(super) migrations: &'a [Migration],
    /// The columns that the statements name.
    pub(super) columns: &'a [&'a str],
    /// The partitions of new tables. If they are set, an existing table must have as many.
    pub(super) partitions: Option<PartitionCount>,
}

impl KnownSchema<'_> {
    /// Returns all migrations as SQL text.
    pub(super) fn steps(&self, table: &Table) -> Vec<SchemaStep> {
        let steps = schema::steps(self.migrations, table, &BOOKKEEPING);
        match self.partitions {
            Some(partitions) => partitions.divide(steps, table),
            None => steps,
        }
    }
}

/// Applies missing migrations in one transaction, so an interrupted migration changes nothing. A second process waits
/// for the lock and then finds nothing to do. If no migration is missing, nothing is locked or written.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    table: &Table,
    place: &ErrorContext,
    create: bool,
    known: &KnownSchema<'_>,
) -> Result<(), StoreError> {
    let told = |error| place.error::<PostgresDialect>(Phase::Connecting, error);
    let found = inspect(connection, table).await.map_err(told)?;
    if !schema::is_due(&found, known.migrations, table, create)? {
        fits(connection, table, place, known.columns).await?;
        return has_partitions(connection, table, place, known).await;
    }
    let mut transaction = connection.begin().await.map_err(told)?;
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK);
    lock.execute(&mut *transaction).await.map_err(told)?;
    // Another process may have migrated meanwhile.
    let found = inspect(&mut transaction, table).await.map_err(told)?;
    let applied = schema::applied(&found, known.migrations, table)?;
    // Before the first statement: a table of steps outlives a record table that was dropped.
    has_partitions(&mut transaction, table, place, known).await?;
    for step in known.steps(table).iter().skip(applied) {
        apply(&mut transaction, step).await.map_err(told)?;
    }
    fits(&mut transaction, table, place, known.columns).await?;
    transaction.commit().await.map_err(told)
}

/// Returns the status of the schema.
pub(super) async fn status(
    connection: &mut PgConnection,
    table: &Table,
    place: &ErrorContext,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, StoreError> {
    let told = |error| place.error::<PostgresDialect>(Phase::Connecting, error);
    let read = async {
        let found = inspect(connection, table).await.map_err(told)?;
        let fits = layout(connection, table, known.columns).await.map_err(told)?;
        let mut status = schema::status(&found, fits, known.migrations, table, &BOOKKEEPING);
        let Some(partitions) = known.partitions else { return Ok(status) };
        if status.problem.is_none() {
            status.problem = other_partitions(connection, table, partitions).await.map_err(told)?;
        }
        status.pending = match status.problem {
            Some(_) => Vec::new(),
            None => partitions.divide(status.pending, table),
        };
        Ok(status)
    };
    timeout(MIGRATION, read).await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?
}

/// Returns the status of the schema of an outbox or a delay table, by a connection outside of the pool.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(super) async fn status_by(
    pool: &PgPool,
    table: &Table,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, StoreError> {
    let place = place(pool, table.name());
    let connection = pool.connect_options().connect().await;
    let mut connection = connection.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))?;
    let status = status(&mut connection, table, &place, known).await?;
    // The connection ends even if its closing fails.
    let _ = connection.close().await;
    Ok(status)
}

/// Returns the names of a pool's database for errors.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(super) fn place(pool: &PgPool, table: &str) -> ErrorContext {
    let connections = pool.options().get_max_connections();
    let options = pool.connect_options();
    let (database, socket) = (shown(&options), options.get_socket().is_some());
    ErrorContext { database, table: table.into(), connections, read_only: false, socket }
}

/// Reads the applied migrations before the table: if another process migrates, the table exists when its migration is
/// recorded.
async fn inspect(connection: &mut PgConnection, table: &Table) -> Result<Found, sqlx::Error> {
    let mut noted = notes(connection, table).await?;
    let records = oid(connection, table, table.name()).await?.is_some();
    if records && noted.is_none() {
        // Both may have been created since.
        noted = notes(connection, table).await?;
    }
    Ok(match (records, noted) {
        (false, None) => Found::Nothing,
        (true, None) => Found::Foreign,
        // The table was created, recorded and dropped since.
        (false, Some(rows)) if !rows.is_empty() => Found::Dropped,
        (true, Some(rows)) if rows.is_empty() => Found::Foreign,
        (_, Some(rows)) => Found::Applied(rows),
    })
}

/// Returns the versions and checksums of the applied migrations, or `None` without their table.
async fn notes(connection: &mut PgConnection, table: &Table) -> Result<Option<Vec<(i64, Vec<u8>)>>, sqlx::Error> {
    if oid(connection, table, &table.migrations()).await?.is_none() {
        return Ok(None);
    }
    let text = format!("SELECT version, checksum FROM {} ORDER BY version", table.quoted_migrations());
    let rows = sqlx::query(AssertSqlSafe(text)).fetch_all(connection).await?;
    let read = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map(Some)
}

/// Returns the number of the table, if it exists. `to_regclass` caches a missing table, even while another process
/// creates the table under a lock that this process waits for.
async fn oid(connection: &mut PgConnection, table: &Table, name: &str) -> Result<Option<i64>, sqlx::Error> {
    let text = "SELECT c.oid::bigint FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                WHERE c.relname = $1 AND (n.nspname = $2 OR $2 IS NULL AND n.nspname = ANY(current_schemas(false)))";
    let found = sqlx::query(text).bind(name.to_owned()).bind(table.schema().map(str::to_owned));
    found.fetch_optional(connection).await?.map(|row| row.try_get(0)).transpose()
}

/// Returns the schema of the table.
pub(super) async fn schema_of(connection: &mut PgConnection, table: &Table) -> Result<String, sqlx::Error> {
    let text = "SELECT n.nspname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                WHERE c.relname = $1 AND (n.nspname = $2 OR $2 IS NULL AND n.nspname = ANY(current_schemas(false))) \
                ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1";
    let found = sqlx::query(text).bind(table.name().to_owned()).bind(table.schema().map(str::to_owned));
    found.fetch_one(connection).await?.try_get(0)
}

async fn apply(connection: &mut PgConnection, step: &SchemaStep) -> Result<(), sqlx::Error> {
    for statement in step.statements() {
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Returns the problem of an existing table that has another number of partitions.
async fn other_partitions(
    connection: &mut PgConnection,
    table: &Table,
    partitions: PartitionCount,
) -> Result<Option<SchemaProblem>, sqlx::Error> {
    for name in [table.name().to_owned(), format!("{}_steps", table.name())] {
        let Some(oid) = oid(connection, table, &name).await? else { continue };
        let count = sqlx::query("SELECT count(*) FROM pg_inherits WHERE inhparent::bigint = $1").bind(oid);
        let problem = partitions.problem(&name, count.fetch_one(&mut *connection).await?.try_get(0)?);
        if problem.is_some() {
            return Ok(problem);
        }
    }
    Ok(None)
}

/// Checks that existing tables have the partitions that are set, if any are set.
async fn has_partitions(
    connection: &mut PgConnection,
    table: &Table,
    place: &ErrorContext,
    known: &KnownSchema<'_>,
) -> Result<(), StoreError> {
    let Some(partitions) = known.partitions else { return Ok(()) };
    let problem = other_partitions(connection, table, partitions).await;
    match problem.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))? {
        Some(problem) => Err(problem.into()),
        None => Ok(()),
    }
}

/// Checks that the table has every column that the statements name.
async fn fits(
    connection: &mut PgConnection,
    table: &Table,
    place: &ErrorContext,
    expected: &[&str],
) -> Result<(), StoreError> {
    let fits = layout(connection, table, expected).await;
    match fits.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))? {
        true => Ok(()),
        false => Err(schema::foreign(table).into()),
    }
}

/// Returns true if the table has every column that the statements name.
async fn layout(connection: &mut PgConnection, table: &Table, expected: &[&str]) -> Result<bool, sqlx::Error> {
    let oid = oid(connection, table, table.name()).await?;
    let text = "SELECT attname::text FROM pg_attribute WHERE attrelid::bigint = $1 AND attnum > 0 AND NOT attisdropped";
    let columns = sqlx::query(text).bind(oid).fetch_all(connection).await?;
    let there = |name: &&str| columns.iter().any(|row| row.try_get::<&str, _>(0).is_ok_and(|found| found == *name));
    Ok(expected.iter().all(there))
}
