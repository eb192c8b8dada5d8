//! The comparison of the tables in a database with the migrations of this version.
use std::fmt;

use idempotent_core::{StoreError, StoreErrorKind};

use super::{Found, Migration, SchemaStep, applied, foreign, steps};
use crate::sql_database::CatalogSql;
use crate::table::Table;

/// The schema of the tables of a store, an outbox or a delay table, compared with this version of the crate.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SchemaStatus {
    /// The name of the table, without its schema.
    pub table: String,
    /// The schema version in the database, or 0 without tables.
    pub found: u32,
    /// The schema version that this version of the crate needs.
    pub known: u32,
    /// The migrations that are missing in the database, ascending. The list is empty if there is a problem.
    pub pending: Vec<SchemaStep>,
    /// The reason why the tables can neither be used nor migrated.
    pub problem: Option<SchemaProblem>,
}

impl SchemaStatus {
    /// Returns whether a store opens on these tables without a migration.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.pending.is_empty() && self.problem.is_none()
    }
}

/// The reason why tables can neither be used nor migrated, with the remedy. Converts to the [`StoreError`] of opening.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SchemaProblem {
    pub(super) kind: SchemaProblemKind,
    pub(super) text: String,
}

/// The kind of a [`SchemaProblem`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SchemaProblemKind {
    /// Another program created the table, or the table has other columns than the migrations create.
    ForeignTable,
    /// The database records migrations of a table that is missing.
    DroppedTable,
    /// A newer version of this crate migrated the table.
    NewerVersion,
    /// The database records a later migration, but not this one.
    MissingMigration,
    /// A migration was applied with another text than that of this version.
    EditedMigration,
    /// The table has another number of partitions than the builder's setting.
    OtherPartitions,
}

impl SchemaProblem {
    #[cfg(feature = "postgres")]
    pub(crate) fn new(kind: SchemaProblemKind, text: String) -> Self {
        Self { kind, text }
    }

    /// Returns the kind of the problem.
    #[must_use]
    pub fn kind(&self) -> SchemaProblemKind {
        self.kind
    }
}

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<SchemaProblem> for StoreError {
    fn from(problem: SchemaProblem) -> Self {
        let kind = match problem.kind {
            SchemaProblemKind::ForeignTable => StoreErrorKind::Foreign,
            _ => StoreErrorKind::Schema,
        };
        StoreError::new(kind).because(problem.text)
    }
}

/// Returns the status of a table. `has_columns`: the table has every column that the statements name.
pub(crate) fn status(
    found: &Found,
    has_columns: bool,
    known: &[Migration],
    table: &Table,
    catalog: &CatalogSql,
) -> SchemaStatus {
    let version = match found {
        Found::Applied(rows) => rows.last().map_or(0, |(version, _)| u32::try_from(*version).unwrap_or(u32::MAX)),
        Found::Nothing | Found::Foreign | Found::Dropped => 0,
    };
    // Later migrations may add the columns that are missing.
    let applied = applied(found, known, table)
        .and_then(|applied| if applied == known.len() && !has_columns { Err(foreign(table)) } else { Ok(applied) });
    let mut steps = steps(known, table, catalog);
    let (pending, problem) = match applied {
        Ok(applied) => (steps.split_off(applied), None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let known = u32::try_from(known.len()).unwrap_or(u32::MAX);
    SchemaStatus { table: table.name().into(), found: version, known, pending, problem }
}
