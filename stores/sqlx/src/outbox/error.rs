//! The error of an outbox.
use std::fmt;

use idempotent_core::__private::url::unreached;

use crate::table_database::PoolError;

/// An error of an outbox, with a [`kind`](Self::kind), a context and a cause.
#[derive(Debug)]
pub struct OutboxError {
    kind: OutboxErrorKind,
    context: Box<str>,
    cause: Option<sqlx::Error>,
}

/// The kind of an [`OutboxError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OutboxErrorKind {
    /// The outbox contains another message with this id. The new message was not written.
    Conflict,
    /// The message or a setting is invalid. Nothing was written.
    Invalid,
    /// No such message exists, or its status does not allow the operation.
    NotFound,
    /// The database failed. Within a transaction: roll back and retry.
    Database,
}

impl OutboxError {
    pub(crate) fn new(kind: OutboxErrorKind, context: impl Into<Box<str>>) -> Self {
        Self { kind, context: context.into(), cause: None }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> OutboxErrorKind {
        self.kind
    }

    /// Returns whether the same call may succeed later.
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

impl From<PoolError> for OutboxError {
    fn from(PoolError { error, .. }: PoolError) -> Self {
        error.into()
    }
}

/// Returns a text with the error code only: the database's own text may quote written values.
fn context(cause: &sqlx::Error) -> String {
    let Some(error) = cause.as_database_error() else {
        return match cause {
            sqlx::Error::Io(io) => {
                format!("the connection of the outbox to the database failed ({io}): {}", unreached(&io.to_string()))
            }
            sqlx::Error::PoolTimedOut => NO_CONNECTION.into(),
            _ => "the connection of the outbox to the database failed".into(),
        };
    };
    match error.code().as_deref().unwrap_or_default() {
        "42P01" | "42S02" => MISSING.into(),
        _ if error.message().starts_with("no such table") => MISSING.into(),
        #[cfg(feature = "sqlite")]
        _ if crate::sqlite::is_stale(cause) => crate::sqlite::STALE.into(),
        code if code == "25006" || error.message().contains("read-only") => READ_ONLY.into(),
        code => format!("the database refused the statement of the outbox (code {code})"),
    }
}

const NO_CONNECTION: &str = "the pool of the outbox had no connection in time: check that the server is running, the address of the pool, \
                             and its number of connections";
const READ_ONLY: &str =
    "the database of the outbox takes no writes, probably a replica: name the primary in the URL of the pool";

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
        assert_eq!(text, "the database refused the statement of the outbox (code 1)");
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
