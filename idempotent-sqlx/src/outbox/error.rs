//! What can go wrong with an outbox.
use std::fmt;

/// An error of an outbox: a [`kind`](Self::kind) to decide on, a context and a cause to read.
#[derive(Debug)]
pub struct OutboxError {
    kind: OutboxErrorKind,
    context: Box<str>,
    cause: Option<sqlx::Error>,
}

/// What may be concluded from an [`OutboxError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OutboxErrorKind {
    /// A message of this id is there, and it is another one. Nothing was written of this one.
    Conflict,
    /// The message or a setting cannot be what it is. Nothing was written.
    Invalid,
    /// There is no such message, or it is not in a state that allows this.
    NotFound,
    /// The database failed. In a transaction: roll back, and try again.
    Database,
}

impl OutboxError {
    pub(crate) fn new(kind: OutboxErrorKind, context: impl Into<Box<str>>) -> Self {
        Self { kind, context: context.into(), cause: None }
    }

    /// What to decide on.
    #[must_use]
    pub fn kind(&self) -> OutboxErrorKind {
        self.kind
    }

    /// Whether the same call may go well later.
    #[must_use]
    pub fn is_worth_a_retry(&self) -> bool {
        self.kind == OutboxErrorKind::Database
    }
}

impl From<sqlx::Error> for OutboxError {
    fn from(cause: sqlx::Error) -> Self {
        Self { kind: OutboxErrorKind::Database, context: "the outbox's database failed".into(), cause: Some(cause) }
    }
}

impl fmt::Display for OutboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl std::error::Error for OutboxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
