//! Hash partitions of the tables that grow with the number of keys: the records and the steps.
//!
//! Ids are the partition key, so the primary key keeps an id unique over all partitions, and a statement about one id uses one
//! partition. Partitions belong to the tables, and not to a migration: the recorded checksums are those of a table without
//! partitions, and a store opens both kinds of tables with the same statements.
use std::fmt::Write as _;

use idempotent_core::{StoreError, StoreErrorKind};

use crate::schema::{SchemaProblem, SchemaProblemKind, SchemaStep};
use crate::table::Table;

/// The largest number of partitions. The name of the last partition, `TABLE_steps_p127`, then has at most 63 bytes.
const MOST: u16 = 128;

/// The storage parameters at the end of a migration. A partitioned table has none, so each partition gets them.
const STORAGE: &str = " WITH (fillfactor=80)";

/// The number of partitions, at least 2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PartitionCount(u16);

impl PartitionCount {
    /// Takes a number from 2 to 128.
    ///
    /// # Errors
    /// The number is below 2, or above 128.
    pub(super) fn new(number: u16) -> Result<Self, StoreError> {
        if (2..=MOST).contains(&number) {
            return Ok(Self(number));
        }
        Err(StoreError::new(StoreErrorKind::Schema)
            .because(format!("`partitions({number})`: the number of partitions is between 2 and {MOST}")))
    }

    /// Returns the migrations that create tables with these partitions.
    pub(super) fn divide(self, steps: Vec<SchemaStep>, table: &Table) -> Vec<SchemaStep> {
        steps.into_iter().map(|step| step.map_statements(|statement| self.divided(statement, table))).collect()
    }

    /// Returns the statement, with partitions if it creates the table of the records or that of the steps.
    fn divided(self, statement: String, table: &Table) -> String {
        let Some(created) = statement.strip_prefix("CREATE TABLE ") else { return statement };
        let (condition, created) = match created.strip_prefix("IF NOT EXISTS ") {
            Some(created) => ("IF NOT EXISTS ", created),
            None => ("", created),
        };
        let tables = [(table.quoted(), "p"), (table.quoted_steps(), "steps_p")];
        let is_created = |(name, _): &&(String, &str)| {
            created.strip_prefix(name.as_str()).is_some_and(|columns| columns.starts_with(" ("))
        };
        let Some((name, partition)) = tables.iter().find(is_created) else { return statement };
        let (columns, storage) = match statement.strip_suffix(STORAGE) {
            Some(columns) => (columns, STORAGE),
            None => (statement.as_str(), ""),
        };
        let mut divided = format!("{columns} PARTITION BY HASH (id)");
        for remainder in 0..self.0 {
            let part = table.quoted_beside(&format!("{partition}{remainder}"));
            // Writing to a String does not fail.
            let _ = write!(
                divided,
                ";\nCREATE TABLE {condition}{part} PARTITION OF {name} FOR VALUES WITH (MODULUS {}, REMAINDER \
                 {remainder}){storage}",
                self.0
            );
        }
        divided
    }

    /// Returns the problem of a table with this number of partitions, if it is another number.
    pub(super) fn problem(self, name: &str, found: i64) -> Option<SchemaProblem> {
        if found == i64::from(self.0) {
            return None;
        }
        let number = if found == 0 { "no".to_owned() } else { found.to_string() };
        let text = format!(
            "table `{name}` has {number} partitions, and `partitions({})` is set: a table keeps the partitions with which it \
             was created, so leave `partitions` out, or create another `table` and copy the records",
            self.0
        );
        Some(SchemaProblem::new(SchemaProblemKind::OtherPartitions, text))
    }
}
