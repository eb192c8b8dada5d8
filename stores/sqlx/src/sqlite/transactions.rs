//! The connection for transactions of an inbox.
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::connection::OpenFile;

/// The connection for transactions, which opens when the first one begins. SQLite has one writer at a time, so a second
/// connection would only wait for the lock by polling, while callers of one connection wait in a queue.
#[derive(Debug)]
pub(super) struct Transactions {
    /// The options of the file, or `None` for a database in memory, which only the store's own connection can see.
    pub(super) options: Option<SqliteConnectOptions>,
    pub(super) file: Option<Arc<OpenFile>>,
    pub(super) patience: Duration,
    pub(super) pool: OnceLock<SqlitePool>,
}

impl Transactions {
    /// Returns the pool.
    ///
    /// # Errors
    /// `Denied`: the database is in memory, or its file was removed or replaced.
    pub(super) fn pool(&self) -> Result<&SqlitePool, StoreError> {
        let Some((options, file)) = self.options.as_ref().zip(self.file.as_ref()) else {
            let why = "a database in memory has only the connection of the store: use a file";
            return Err(StoreError::new(StoreErrorKind::Denied).because(why));
        };
        file.check()?;
        Ok(self.pool.get_or_init(|| {
            let one = SqlitePoolOptions::new().max_connections(1).acquire_timeout(self.patience);
            // SQLite may have rolled back a transaction that sqlx takes for open.
            let one = one.before_acquire(|connection, _| {
                let sound = !sqlx::Connection::is_in_transaction(connection);
                Box::pin(async move { Ok(sound) })
            });
            one.test_before_acquire(false).connect_lazy_with(options.clone())
        }))
    }
}
