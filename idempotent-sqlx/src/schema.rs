//! Migrations and what their bookkeeping table says, the same for every dialect.
use idempotent_core::{StoreError, StoreErrorKind};
use sha2::{Digest, Sha256};

use crate::table::Table;

/// One step of the schema; its version is its place in the list, from 1. `{table}` stands for the quoted name,
/// `{steps}` for that of the table with the steps of runs, `{lines}` for that with the order tables of streams, `{log}` and `{audit}` for those beside an outbox, and `{name}`
/// for the bare name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// A description for errors.
    pub(crate) name: &'static str,
    /// Statements. Once released never edited: a change is a new step.
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

/// The state of the tables in the database.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Neither the record table nor its bookkeeping.
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
pub(crate) fn applied(found: &Found, known: &[Migration], table: &Table) -> Result<usize, StoreError> {
    let name = table.name();
    let rows = match found {
        Found::Nothing => return Ok(0),
        Found::Foreign => {
            return Err(StoreError::new(StoreErrorKind::Foreign).because(format!(
                "table `{name}` exists with a different layout than this version creates: set another `table`, or \
                 rename that one"
            )));
        }
        Found::Dropped => {
            return Err(schema(format!(
                "table `{name}` is missing, but `{}` says it was made: restore it, or drop that one too to begin with \
                 no records",
                table.migrations()
            )));
        }
        Found::Applied(rows) => rows,
    };
    for (index, (version, checksum)) in rows.iter().enumerate() {
        let expected = index as i64 + 1;
        let Some(migration) = known.get(index) else {
            let (found, supported) = (rows.last().map_or(0, |row| row.0), known.len());
            return Err(schema(format!(
                "table `{name}` has schema version {found}, supported is {supported}: run the version of this program \
                 that made it, or a newer one"
            )));
        };
        if *version != expected {
            return Err(schema(format!(
                "`{}` misses migration {expected} `{}`: restore the row, or the database",
                table.migrations(),
                migration.name
            )));
        }
        if *checksum != migration.checksum() {
            return Err(schema(format!(
                "migration {version} `{}` was applied to table `{name}` with another text than this version's: restore \
                 the database, or the program that made it",
                migration.name
            )));
        }
    }
    Ok(rows.len())
}

/// Returns true if there are migrations to apply.
///
/// # Errors
/// Migrations are needed, and `create` is false.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn is_due(found: &Found, known: &[Migration], table: &Table, create: bool) -> Result<bool, StoreError> {
    let applied = applied(found, known, table)?;
    match applied < known.len() {
        true if !create => Err(needed(found, applied, known.len(), table)),
        due => Ok(due),
    }
}

/// Returns the error for missing migrations that may not be applied.
pub(crate) fn needed(found: &Found, applied: usize, known: usize, table: &Table) -> StoreError {
    let name = table.name();
    schema(match found {
        Found::Nothing => {
            format!("table `{name}` is missing: open it once with `create(true)`")
        }
        _ => {
            format!("table `{name}` has schema version {applied}, needed is {known}: open it once with `create(true)`")
        }
    })
}

fn schema(context: String) -> StoreError {
    StoreError::new(StoreErrorKind::Schema).because(context)
}
