//! The one name that gets into a statement's text.
use idempotent_core::{StoreError, StoreErrorKind};

/// The name of the record table: checked, so that nothing can hide in it, and quoted all the same.
#[derive(Clone, Debug)]
pub(crate) struct Table(String);

impl Table {
    /// The default name.
    pub(crate) const DEFAULT: &str = "idempotent_record";
    /// PostgreSQL cuts longer names off without an error, so that two of them would meet.
    const MAX: usize = 63;

    /// Takes `[a-z_][a-z0-9_]*` of at most 63 bytes.
    pub(crate) fn new(name: &str) -> Result<Self, StoreError> {
        let refuse = |what: String| {
            Err(StoreError::new(StoreErrorKind::Schema).because(format!(
                "table name {:?} {what}: a name is a letter a-z or `_`, then letters a-z, digits and `_`, 1 to 63 \
                 bytes in all; give one like \"{}\"",
                name.chars().take(80).collect::<String>(),
                Self::DEFAULT
            )))
        };
        if name.len() > Self::MAX {
            return refuse(format!("has {} bytes", name.len()));
        }
        let fits = |(index, byte): (usize, u8)| match byte {
            b'a'..=b'z' | b'_' => true,
            b'0'..=b'9' => index > 0,
            _ => false,
        };
        match name.bytes().enumerate().find(|at| !fits(*at)) {
            None if name.is_empty() => refuse("is empty".into()),
            None => Ok(Self(name.into())),
            Some((index, _)) => refuse(format!("has something else at byte {index}")),
        }
    }

    /// As it was given.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// The name of the table that says which migrations were applied.
    pub(crate) fn migrations(&self) -> String {
        format!("{}_migrations", self.0)
    }

    /// Quoted for a statement.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl Default for Table {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}
