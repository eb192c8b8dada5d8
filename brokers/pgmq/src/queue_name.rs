//! The name of a queue, and its tables.
use std::fmt;
use std::sync::Arc;

use idempotent_mq::SourceError;

use crate::error::fatal;

/// A valid name of a queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QueueName(Arc<str>);

/// The limit of PGMQ, which leaves room for the prefixes of its tables.
const LONGEST: usize = 47;

impl QueueName {
    /// Checks a name. `what` is the setting, for the error.
    ///
    /// # Errors
    /// The name is empty, is too long, or contains other characters than letters, digits, `-` and `_`.
    pub(crate) fn new(what: &str, name: &str) -> Result<Self, SourceError> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > LONGEST || !name.chars().all(is_valid) {
            let text = format!("`{what}` is `{name}`; use 1 to {LONGEST} letters, digits, `-` and `_`");
            return Err(fatal("checking the settings", &text));
        }
        Ok(Self(name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Returns the name of the table, which PGMQ writes in lower case.
    pub(crate) fn table(&self) -> String {
        format!("q_{}", self.0.to_ascii_lowercase())
    }

    /// Returns the table in SQL.
    pub(crate) fn quoted(&self) -> String {
        format!("pgmq.\"{}\"", self.table())
    }

    /// Returns the table of archived messages in SQL.
    pub(crate) fn quoted_archive(&self) -> String {
        format!("pgmq.\"a_{}\"", self.0.to_ascii_lowercase())
    }

    /// Returns the channel on which PGMQ notifies of new messages.
    pub(crate) fn channel(&self) -> String {
        format!("pgmq.{}.INSERT", self.table())
    }

    pub(crate) fn is_same_table(&self, other: &Self) -> bool {
        self.table() == other.table()
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
