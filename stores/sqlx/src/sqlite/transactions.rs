//! The connection for transactions of an inbox.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idempotent_core::{Entropy as _, OsEntropy, StoreError, StoreErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions};

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
    /// The savepoint that begins each run, and identifies its transaction later. No handler can guess its name.
    pub(super) mark: String,
    /// True if the connection is not to be used again.
    discarded: Arc<AtomicBool>,
    /// The settings of the connection before the first run.
    session: OnceLock<String>,
}

/// The settings of a connection that change what later statements do or see.
const SESSION: &str = "SELECT printf('%s|%s|%s|%s|%s|%s|%s|%s|%s', (SELECT group_concat(name || file) FROM pragma_database_list), \
    (SELECT query_only FROM pragma_query_only), (SELECT foreign_keys FROM pragma_foreign_keys), \
    (SELECT recursive_triggers FROM pragma_recursive_triggers), (SELECT read_uncommitted FROM pragma_read_uncommitted), \
    (SELECT ignore_check_constraints FROM pragma_ignore_check_constraints), (SELECT synchronous FROM pragma_synchronous), \
    (SELECT locking_mode FROM pragma_locking_mode), (SELECT timeout FROM pragma_busy_timeout))";

async fn session(connection: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(SESSION).fetch_one(connection).await
}

/// Returns the name of a savepoint.
pub(super) fn savepoint(number: u128) -> String {
    format!("idempotent_{number:032x}")
}

impl Transactions {
    pub(super) fn new(
        options: Option<SqliteConnectOptions>,
        file: Option<Arc<OpenFile>>,
        patience: Duration,
    ) -> Result<Self, StoreError> {
        let bits = OsEntropy.bits();
        let bits = bits.map_err(|error| StoreError::new(StoreErrorKind::NotApplied).because(error.to_string()))?;
        Ok(Self {
            options,
            file,
            patience,
            pool: OnceLock::new(),
            mark: savepoint(bits),
            discarded: Arc::default(),
            session: OnceLock::new(),
        })
    }

    /// Notes the settings of the connection before the first run.
    pub(super) async fn note_session(&self, connection: &mut SqliteConnection) {
        if self.session.get().is_none()
            && let Ok(settings) = session(connection).await
        {
            let _ = self.session.set(settings);
        }
    }

    /// Closes the connection after its transaction if its settings are not those before the first run.
    pub(super) async fn check_session(&self, connection: &mut SqliteConnection) {
        if session(connection).await.ok().as_ref() != self.session.get() {
            self.discard();
        }
    }

    /// Closes the connection after its transaction: the handler has left it in no known state.
    pub(super) fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
    }

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
            let discarded = self.discarded.clone();
            // SQLite may have rolled back a transaction that sqlx takes for open.
            let one = one.before_acquire(move |connection, _| {
                let sound =
                    !discarded.swap(false, Ordering::AcqRel) && !sqlx::Connection::is_in_transaction(connection);
                Box::pin(async move { Ok(sound) })
            });
            one.test_before_acquire(false).connect_lazy_with(options.clone())
        }))
    }
}
