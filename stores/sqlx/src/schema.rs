//! Migrations, their SQL text, and checks of the migrations that a database has.
mod status;

use std::fmt;

use idempotent_core::{StoreError, StoreErrorKind};
use sha2::{Digest, Sha256};

pub(crate) use self::status::status;
pub use self::status::{SchemaProblem, SchemaProblemKind, SchemaStatus};
use crate::sql_database::CatalogSql;
use crate::table::Table;

/// A migration of the schema. Its version is its position in the list, starting at 1.
///
/// In the text, `{table}` is the quoted name of the table, `{name}` is the name without quotes, and `{steps}`, `{lines}`,
/// `{log}` and `{audit}` are the quoted names of related tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// A description for errors.
    pub(crate) name: &'static str,
    /// The statements. The text of a released migration never changes: a change is a new migration.
    pub(crate) sql: &'static str,
}

impl Migration {
    /// Returns the SHA-256 of the text before the table's name is inserted.
    pub(crate) fn checksum(&self) -> [u8; 32] {
        Sha256::digest(self.sql).into()
    }

    /// Returns the statements for this table.
    pub(crate) fn for_table(&self, table: &Table) -> String {
        let text = self.sql.replace("{table}", &table.quoted()).replace("{steps}", &table.quoted_steps());
        let text = text.replace("{lines}", &table.quoted_beside("lines"));
        let text = text.replace("{log}", &table.quoted_beside("log")).replace("{audit}", &table.quoted_beside("audit"));
        text.replace("{name}", table.name())
    }
}

/// One migration of a table as SQL text, for administrators who create and change tables themselves.
///
/// [`Display`](fmt::Display) prints the migration as a script: a comment, and statements that end with semicolons. The last
/// statement records the migration, so that a store recognises it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SchemaStep {
    version: u32,
    name: &'static str,
    table: String,
    statements: Vec<String>,
}

impl SchemaStep {
    /// Returns the version of the schema after this migration. The first version is 1.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the name of the migration, as error texts contain it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Returns the migration with changed statements.
    #[cfg(feature = "postgres")]
    pub(crate) fn map_statements(self, change: impl FnMut(String) -> String) -> Self {
        Self { statements: self.statements.into_iter().map(change).collect(), ..self }
    }

    /// Returns the SQL texts of the migration in order, without semicolons at their ends. A text may contain several
    /// statements.
    ///
    /// Execute all texts of a migration in one transaction, except on MariaDB and MySQL, where each `CREATE TABLE` commits.
    #[must_use]
    pub fn statements(&self) -> &[String] {
        &self.statements
    }
}

impl fmt::Display for SchemaStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "-- {}, migration {}: {}", self.table, self.version, self.name)?;
        self.statements.iter().try_for_each(|statement| writeln!(f, "{statement};"))
    }
}

/// Returns the SQL text of all migrations of a table, ascending. The first one creates the table of applied migrations.
pub(crate) fn steps(known: &[Migration], table: &Table, catalog: &CatalogSql) -> Vec<SchemaStep> {
    let migrations = table.quoted_migrations();
    let step = |(migration, version): (&Migration, u32)| {
        let create = format!("CREATE TABLE IF NOT EXISTS {migrations} {}", catalog.columns);
        let checksum: String = migration.checksum().iter().map(|byte| format!("{byte:02x}")).collect();
        let row = catalog.row.replace("{version}", &version.to_string()).replace("{checksum}", &checksum);
        let statements = [migration.for_table(table), format!("INSERT INTO {migrations} {row}")];
        let statements = (version == 1).then_some(create).into_iter().chain(statements).collect();
        SchemaStep { version, name: migration.name, table: table.name().into(), statements }
    };
    known.iter().zip(1..).map(step).collect()
}

/// The state of the tables in the database.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Neither the record table nor its catalog.
    Nothing,
    /// A table of that name that no migration of ours made.
    Foreign,
    /// The bookkeeping of a record table that is not there.
    Dropped,
    /// These migrations: versions and checksums, ascending.
    Applied(Vec<(i64, Vec<u8>)>),
}

/// Returns the number of applied migrations of `known`.
///
/// # Errors
/// The applied migrations differ from `known`.
pub(crate) fn applied(found: &Found, known: &[Migration], table: &Table) -> Result<usize, SchemaProblem> {
    let name = table.name();
    let problem = |kind, text| Err(SchemaProblem { kind, text });
    let rows = match found {
        Found::Nothing => return Ok(0),
        Found::Foreign => return Err(foreign(table)),
        Found::Dropped => {
            let text = format!(
                "table `{name}` is missing, but `{}` says it was made: restore it, or drop that one too to begin with \
                 no records",
                table.migrations()
            );
            return problem(SchemaProblemKind::DroppedTable, text);
        }
        Found::Applied(rows) => rows,
    };
    for (index, (version, checksum)) in rows.iter().enumerate() {
        let expected = index as i64 + 1;
        let Some(migration) = known.get(index) else {
            let (found, supported) = (rows.last().map_or(0, |row| row.0), known.len());
            let text = format!(
                "table `{name}` has schema version {found}, supported is {supported}: run the version of this program \
                 that made it, or a newer one"
            );
            return problem(SchemaProblemKind::NewerVersion, text);
        };
        if *version != expected {
            let text = format!(
                "`{}` misses migration {expected} `{}`: restore the row, or the database",
                table.migrations(),
                migration.name
            );
            return problem(SchemaProblemKind::MissingMigration, text);
        }
        if *checksum != migration.checksum() {
            let text = format!(
                "migration {version} `{}` was applied to table `{name}` with another text than this version's: restore \
                 the database, or the program that made it",
                migration.name
            );
            return problem(SchemaProblemKind::EditedMigration, text);
        }
    }
    Ok(rows.len())
}

/// Returns the problem of a table that this library did not create.
pub(crate) fn foreign(table: &Table) -> SchemaProblem {
    let text = format!(
        "table `{}` exists with a different layout than this version creates: set another `table`, or rename that one",
        table.name()
    );
    SchemaProblem { kind: SchemaProblemKind::ForeignTable, text }
}

/// Returns true if there are migrations to apply.
///
/// # Errors
/// Migrations are needed, and `create` is false.
pub(crate) fn is_due(found: &Found, known: &[Migration], table: &Table, create: bool) -> Result<bool, StoreError> {
    let applied = applied(found, known, table)?;
    match applied < known.len() {
        true if !create => Err(needed(found, applied, known, table)),
        due => Ok(due),
    }
}

/// Returns the error for missing migrations that the store may not apply.
fn needed(found: &Found, applied: usize, known: &[Migration], table: &Table) -> StoreError {
    let name = table.name();
    let remedy =
        "open it once with `create(true)`, or execute the SQL text that `schema_steps()` of the builder returns";
    schema(match found {
        Found::Nothing => format!("table `{name}` is missing: {remedy}"),
        _ => {
            let missing = known.iter().zip(1..).skip(applied);
            let missing: Vec<_> =
                missing.map(|(migration, version): (_, u32)| format!("{version} `{}`", migration.name)).collect();
            let (needed, missing) = (known.len(), missing.join(", "));
            format!(
                "table `{name}` has schema version {applied}, needed is {needed}; missing migrations: {missing}: {remedy}"
            )
        }
    })
}

fn schema(context: String) -> StoreError {
    StoreError::new(StoreErrorKind::Schema).because(context)
}
