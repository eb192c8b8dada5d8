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
        Self { kind: OutboxErrorKind::Database, context: context(&cause).into(), cause: Some(cause) }
    }
}

/// By the code alone: a database's own text may quote what was written.
fn context(cause: &sqlx::Error) -> String {
    let Some(error) = cause.as_database_error() else { return "the connection to the outbox's database failed".into() };
    match error.code().as_deref().unwrap_or_default() {
        "42P01" | "42S02" => MISSING.into(),
        _ if error.message().starts_with("no such table") => MISSING.into(),
        #[cfg(feature = "sqlite")]
        _ if crate::sqlite::is_stale(cause) => crate::sqlite::STALE.into(),
        code => format!("the outbox's database refused it (code {code})"),
    }
}

const MISSING: &str = "the outbox's table is missing in the database of this connection: is it the one that \
                       `Outbox::builder` was given, opened once with `create(true)`?";

#[cfg(all(test, feature = "sqlite"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use sqlx::sqlite::SqlitePoolOptions;

    use super::OutboxError;

    #[tokio::test]
    async fn the_text_names_the_remedy_and_nothing_that_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?mode=rwc", folder.path().join("shop.db").to_str().unwrap());
        let pool = SqlitePoolOptions::new().connect(&url).await.unwrap();
        let missing = sqlx::query("SELECT 'secret' FROM idempotent_outbox").execute(&pool).await.unwrap_err();
        assert!(OutboxError::from(missing).to_string().contains("`create(true)`"));
        sqlx::query("PRAGMA journal_mode = WAL").execute(&pool).await.unwrap();
        sqlx::query("CREATE TABLE orders (id TEXT)").execute(&pool).await.unwrap();
        let mut late = pool.begin().await.unwrap();
        sqlx::query("SELECT id FROM orders").execute(&mut *late).await.unwrap();
        sqlx::query("INSERT INTO orders VALUES ('1')").execute(&pool).await.unwrap();
        let stale = sqlx::query("INSERT INTO orders VALUES ('secret')").execute(&mut *late).await.unwrap_err();
        assert!(OutboxError::from(stale).to_string().contains("BEGIN IMMEDIATE"));
        let wrong = sqlx::query("SELECT secret FROM orders").execute(&pool).await.unwrap_err();
        let text = OutboxError::from(wrong).to_string();
        assert_eq!(text, "the outbox's database refused it (code 1)");
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
