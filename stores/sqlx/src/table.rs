//! The name of the record table, the only name in the text of statements.
use idempotent_core::{StoreError, StoreErrorKind};

/// The prefix of a statement in the transaction of a caller that meets a row committed after its snapshot. MariaDB 11.6.2 and later
/// roll back the whole transaction by default (error 1020). All other servers skip the comment.
pub(crate) const LATEST: &str = "/*M!110602 SET STATEMENT innodb_snapshot_isolation=OFF FOR */ ";

/// The name of the record table, validated and quoted against SQL injection.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    /// The schema, if it is not the first in the search path.
    schema: Option<String>,
    quote: char,
}

impl Table {
    /// The default name.
    pub(crate) const DEFAULT: &str = "idempotent_record";
    /// The maximum length. PostgreSQL truncates longer names without an error, so two names could become equal.
    const MAX: usize = 63;

    /// Takes `[a-z_][a-z0-9_]*` of at most 63 bytes.
    pub(crate) fn new(name: &str) -> Result<Self, StoreError> {
        checked("table", name)?;
        Ok(Self { name: name.into(), ..Self::default() })
    }

    /// Returns the table in a schema. The same rules apply to the name of the schema.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn in_schema(self, schema: &str) -> Result<Self, StoreError> {
        checked("schema", schema)?;
        Ok(Self { schema: Some(schema.into()), ..self })
    }

    /// Rejects a name that is too long with the suffix `_migrations`: the server truncates it, and two tables could share it.
    #[cfg(any(feature = "delay", feature = "mysql", feature = "outbox", feature = "postgres"))]
    pub(crate) fn with_room_for_migrations(self) -> Result<Self, StoreError> {
        let most = Self::MAX - "_migrations".len();
        if self.name.len() > most {
            return Err(StoreError::new(StoreErrorKind::Schema).because(format!(
                "table name {:?} has {} bytes: with the suffix `_migrations`, the limit is {most}",
                self.name,
                self.name.len()
            )));
        }
        Ok(self)
    }

    /// Returns the table in the schema in which it was found when the store opened. Statements with this name do not depend on a
    /// schema or database that a handler selects. The name of the schema need not follow the rules for names of ours.
    #[cfg(any(feature = "delay", feature = "mysql", feature = "outbox", feature = "postgres"))]
    pub(crate) fn found_in(self, schema: &str) -> Self {
        Self { schema: Some(schema.into()), ..self }
    }

    /// Returns the table with names quoted for MySQL.
    #[cfg(any(feature = "delay", feature = "mysql", feature = "outbox"))]
    pub(crate) fn in_backticks(self) -> Self {
        Self { quote: '`', ..self }
    }

    /// Returns the name in these quotes for a statement.
    pub(crate) fn quoted_by(&self, quote: char) -> String {
        Self { quote, ..self.clone() }.quoted()
    }

    /// Returns the name without quotes.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its schema's name, where one was given.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the name of the table of applied migrations.
    pub(crate) fn migrations(&self) -> String {
        format!("{}_migrations", self.name)
    }

    /// Returns the quoted name of the table with the steps of runs.
    pub(crate) fn quoted_steps(&self) -> String {
        self.quoted_beside("steps")
    }

    /// Returns the quoted name of a related table.
    pub(crate) fn quoted_beside(&self, what: &str) -> String {
        self.in_quotes(&format!("{}_{what}", self.name))
    }

    /// Returns the quoted name for a statement.
    pub(crate) fn quoted(&self) -> String {
        self.in_quotes(&self.name)
    }

    /// Returns the quoted name of the table of applied migrations.
    pub(crate) fn quoted_migrations(&self) -> String {
        self.in_quotes(&self.migrations())
    }

    fn in_quotes(&self, name: &str) -> String {
        let quote = self.quote;
        match &self.schema {
            Some(schema) => {
                let schema = schema.replace(quote, &format!("{quote}{quote}"));
                format!("{quote}{schema}{quote}.{quote}{name}{quote}")
            }
            None => format!("{quote}{name}{quote}"),
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { name: Self::DEFAULT.into(), schema: None, quote: '"' }
    }
}

/// Rejects an invalid name.
fn checked(what_of: &str, name: &str) -> Result<(), StoreError> {
    let refuse = |what: String| {
        Err(StoreError::new(StoreErrorKind::Schema).because(format!(
            "{what_of} name {:?} {what}: a name is a letter a-z or `_`, then letters a-z, digits and `_`, 1 to 63 \
             bytes in all; give one like \"{}\"",
            name.chars().take(80).collect::<String>(),
            Table::DEFAULT
        )))
    };
    if name.len() > Table::MAX {
        return refuse(format!("has {} bytes", name.len()));
    }
    let fits = |(index, byte): (usize, u8)| match byte {
        b'a'..=b'z' | b'_' => true,
        b'0'..=b'9' => index > 0,
        _ => false,
    };
    match name.bytes().enumerate().find(|at| !fits(*at)) {
        None if name.is_empty() => refuse("is empty".into()),
        None => Ok(()),
        Some((index, _)) => refuse(format!("has an invalid character at byte {index}")),
    }
}
