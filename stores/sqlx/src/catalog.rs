//! The tables and recorded migrations of a database, compared with the schema that this version knows.
use idempotent_core::StoreError;

use crate::schema::{Found, Migration, SchemaProblem, SchemaStatus, SchemaStep, foreign, status, steps};
use crate::sql_database::{SqlDatabase, SqlDialect, SqlValue};
use crate::table::Table;

/// The tables that this version creates.
#[derive(Clone, Copy, Debug)]
pub struct KnownSchema<'a> {
    /// All migrations.
    pub(crate) migrations: &'a [Migration],
    /// The columns of the table that the statements name.
    pub(crate) columns: &'a [&'a str],
    /// True if the statements skip locked rows.
    #[cfg_attr(
        not(all(feature = "mysql", any(feature = "delay", feature = "outbox"))),
        allow(dead_code, reason = "only old servers of MariaDB do not skip them")
    )]
    pub(crate) skips_locked: bool,
}

impl KnownSchema<'_> {
    /// Returns the SQL text of all migrations.
    pub(crate) fn steps<Db: SqlDatabase>(&self, table: &Table) -> Vec<SchemaStep> {
        steps(self.migrations, table, &Db::CATALOG)
    }
}

/// A failure of a migration, or of a comparison.
#[derive(Debug)]
pub(crate) enum CatalogError {
    Statement(sqlx::Error),
    Schema(StoreError),
}

impl CatalogError {
    /// Converts the error. `statement` converts the error of a statement.
    pub(crate) fn told(self, statement: impl FnOnce(sqlx::Error) -> StoreError) -> StoreError {
        match self {
            Self::Statement(error) => statement(error),
            Self::Schema(error) => error,
        }
    }
}

impl From<sqlx::Error> for CatalogError {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(error)
    }
}

impl From<StoreError> for CatalogError {
    fn from(error: StoreError) -> Self {
        Self::Schema(error)
    }
}

impl From<SchemaProblem> for CatalogError {
    fn from(problem: SchemaProblem) -> Self {
        Self::Schema(problem.into())
    }
}

/// Reads the applied migrations before the table: if another process migrates, the table exists when its migration is
/// recorded.
pub(crate) async fn inspect<Db: SqlDatabase>(
    connection: &mut Db::Connection,
    table: &Table,
) -> Result<Found, sqlx::Error> {
    let mut applied = recorded::<Db>(connection, table).await?;
    let exists = has_table::<Db>(connection, table, table.name()).await?;
    if exists && applied.is_none() {
        // Both may have been created since.
        applied = recorded::<Db>(connection, table).await?;
    }
    // Each `CREATE TABLE` commits by itself on MySQL: without a row, the migration has only begun.
    let is_begun = Db::DIALECT == SqlDialect::MySql;
    Ok(match (exists, applied) {
        (false, None) => Found::Nothing,
        (true, None) => Found::Foreign,
        // The table was created, recorded and dropped since.
        (false, Some(rows)) if !rows.is_empty() => Found::Dropped,
        (true, Some(rows)) if rows.is_empty() && !is_begun => Found::Foreign,
        (_, Some(rows)) => Found::Applied(rows),
    })
}

/// Returns the versions and checksums of the applied migrations, or `None` without their table.
async fn recorded<Db: SqlDatabase>(
    connection: &mut Db::Connection,
    table: &Table,
) -> Result<Option<Vec<(i64, Vec<u8>)>>, sqlx::Error> {
    if !has_table::<Db>(connection, table, &table.migrations()).await? {
        return Ok(None);
    }
    let text = format!("SELECT version, checksum FROM {} ORDER BY version", table.quoted_migrations());
    let rows = Db::fetch(connection, text.into(), Vec::new(), "ib").await?;
    Ok(Some(rows.into_iter().map(|mut row| (row.int(), row.bytes())).collect()))
}

async fn has_table<Db: SqlDatabase>(
    connection: &mut Db::Connection,
    table: &Table,
    name: &str,
) -> Result<bool, sqlx::Error> {
    Ok(number::<Db>(connection, Db::CATALOG.about(Db::CATALOG.count_tables, table, name)).await? > 0)
}

async fn number<Db: SqlDatabase>(connection: &mut Db::Connection, sql: String) -> Result<i64, sqlx::Error> {
    let row = Db::fetch(connection, sql.into(), Vec::<SqlValue>::new(), "i").await?.pop();
    Ok(row.map_or(0, |mut row| row.int()))
}

/// Executes the statements of migrations.
pub(crate) async fn apply<Db: SqlDatabase>(
    connection: &mut Db::Connection,
    steps: &[SchemaStep],
) -> Result<(), sqlx::Error> {
    for statement in steps.iter().flat_map(SchemaStep::statements) {
        Db::execute_text(connection, statement.clone()).await?;
    }
    Ok(())
}

/// Checks that the table has every column that the statements name.
pub(crate) async fn fits<Db: SqlDatabase>(
    connection: &mut Db::Connection,
    table: &Table,
    known: &KnownSchema<'_>,
) -> Result<(), CatalogError> {
    match has_columns::<Db>(connection, table, known).await? {
        true => Ok(()),
        false => Err(foreign(table).into()),
    }
}

async fn has_columns<Db: SqlDatabase>(
    connection: &mut Db::Connection,
    table: &Table,
    known: &KnownSchema<'_>,
) -> Result<bool, sqlx::Error> {
    let names: Vec<_> = known.columns.iter().map(|name| format!("'{name}'")).collect();
    let text = Db::CATALOG.count_columns.replace("{columns}", &names.join(","));
    let found = number::<Db>(connection, Db::CATALOG.about(&text, table, table.name())).await?;
    Ok(usize::try_from(found) == Ok(names.len()))
}

/// Returns the status of the schema.
pub(crate) async fn current_status<Db: SqlDatabase>(
    connection: &mut Db::Connection,
    table: &Table,
    known: &KnownSchema<'_>,
) -> Result<SchemaStatus, sqlx::Error> {
    let found = inspect::<Db>(connection, table).await?;
    let has_columns = has_columns::<Db>(connection, table, known).await?;
    Ok(status(&found, has_columns, known.migrations, table, &Db::CATALOG))
}
