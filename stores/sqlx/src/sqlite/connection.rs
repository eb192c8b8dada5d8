//! A connection with a fair queue of callers.
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Either, Executor, Sqlite};
use tokio::sync::{Mutex, MutexGuard};

use super::error::ErrorContext;
use super::options::DatabaseTarget;

pub(super) type Query = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

/// Creates a statement that stays prepared on its connection.
pub(super) fn query(sql: &Arc<str>) -> Query {
    sqlx::query(AssertSqlSafe(sql.clone()))
}

/// One connection and a first-come-first-served queue before it. Waiting costs nothing: SQLite's own queue is
/// a sleep that grows, which let one of 64 connections wait for a second.
///
/// Dropping a future on the way loses nothing. The connection stays here; the connection's thread runs a statement
/// that was sent before the statement of the next caller.
#[derive(Debug)]
pub(super) struct FairConnection {
    options: SqliteConnectOptions,
    place: Arc<ErrorContext>,
    patience: Duration,
    /// The file that the connections of the store have open, or `None` for a database in memory.
    file: Option<Arc<OpenFile>>,
    connection: Mutex<ConnectionState>,
}

/// The identity of the file that a store opened. SQLite goes on in a file that was removed or replaced, so each write would be lost
/// without an error.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    /// Device and inode. `None` if the system has none, where an open file cannot be removed.
    id: Option<(u64, u64)>,
}

impl OpenFile {
    /// Returns the identity of the file that a connection has just opened.
    pub(super) fn of(target: &DatabaseTarget) -> Option<Arc<Self>> {
        match target {
            DatabaseTarget::Memory => None,
            DatabaseTarget::File(path) => {
                Some(Arc::new(Self { id: file_id(path).unwrap_or_default(), path: path.clone() }))
            }
        }
    }

    /// Checks that the path still leads to this file, by one system call.
    ///
    /// # Errors
    /// `Denied`: it leads nowhere, or to another file.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let what = match file_id(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => "removed",
            Ok(id) if id != self.id => "replaced",
            // Another error is no evidence.
            _ => return Ok(()),
        };
        Err(StoreError::new(StoreErrorKind::Denied).because(format!(
            "`{}` was {what} while this store had it open: stop every process that uses a file before it is removed or restored, \
             and start this one again",
            self.path.display()
        )))
    }
}

#[cfg(unix)]
fn file_id(path: &Path) -> std::io::Result<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;

    std::fs::metadata(path).map(|found| Some((found.dev(), found.ino())))
}

#[cfg(not(unix))]
fn file_id(_: &Path) -> std::io::Result<Option<(u64, u64)>> {
    Ok(None)
}

/// An open or closed connection.
#[derive(Debug, Default)]
struct ConnectionState {
    connection: Option<SqliteConnection>,
    /// True if a transaction was left open.
    open: bool,
}

impl FairConnection {
    pub(super) fn new(
        options: SqliteConnectOptions,
        place: Arc<ErrorContext>,
        file: Option<Arc<OpenFile>>,
        connection: Option<SqliteConnection>,
    ) -> Self {
        // The timeout covers two waits for the lock of another process: of the current caller and of this one.
        let patience = place.busy_timeout.saturating_mul(2).max(Duration::from_secs(1));
        let connection = Mutex::new(ConnectionState { connection, open: false });
        Self { options, place, patience, file, connection }
    }

    /// Waits for the connection.
    pub(super) async fn turn(&self) -> Result<ConnectionGuard<'_>, StoreError> {
        // No timer without waiting callers. The queue is fair: if the connection is free, the queue is empty.
        if let Some(turn) = self.free().await? {
            return Ok(turn);
        }
        let guard = tokio::time::timeout(self.patience, self.connection.lock()).await;
        self.ready(guard.map_err(|_| self.no_turn())?).await
    }

    pub(super) async fn free(&self) -> Result<Option<ConnectionGuard<'_>>, StoreError> {
        match self.connection.try_lock() {
            Ok(guard) => self.ready(guard).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn ready<'a>(&'a self, guard: MutexGuard<'a, ConnectionState>) -> Result<ConnectionGuard<'a>, StoreError> {
        if let Some(file) = &self.file {
            file.check()?;
        }
        let mut turn = ConnectionGuard { guard, place: &self.place };
        if turn.guard.open {
            turn.roll_back().await;
        }
        if turn.guard.connection.is_none() {
            let connection = self.options.connect().await.map_err(|error| self.place.error(error))?;
            turn.guard.connection = Some(connection);
        }
        Ok(turn)
    }

    /// Returns how long a caller waits for the connection.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the error of a caller that waited too long.
    pub(super) fn no_turn(&self) -> StoreError {
        self.place.no_turn(self.patience)
    }

    /// Returns true if the connection is in use.
    pub(super) fn is_taken(&self) -> bool {
        self.connection.try_lock().is_err()
    }
}

/// The right to use a [`FairConnection`]'s connection.
pub(super) struct ConnectionGuard<'a> {
    guard: MutexGuard<'a, ConnectionState>,
    place: &'a ErrorContext,
}

impl ConnectionGuard<'_> {
    /// Runs one statement including its commit. Returns the number of written rows.
    pub(super) async fn execute(&mut self, query: Query) -> Result<u64, StoreError> {
        // Its first word is all there is: `execute` would wait for the end of the channel too.
        let done = self.connection()?.fetch_many(query).try_next().await;
        let done = self.check(done)?;
        Ok(done.and_then(Either::left).map_or(0, |done| done.rows_affected()))
    }

    /// Returns the first row. Only the last statement of a query that writes may give one: what is left after a row is
    /// reset without a word, and so would be an error of its commit.
    pub(super) async fn first(&mut self, query: Query) -> Result<Option<SqliteRow>, StoreError> {
        let row = query.fetch_optional(self.connection()?).await;
        self.check(row)
    }

    pub(super) async fn all(&mut self, query: Query) -> Result<Vec<SqliteRow>, StoreError> {
        let rows = query.fetch_all(self.connection()?).await;
        self.check(rows)
    }

    /// Runs all statements of the query.
    pub(super) async fn run(&mut self, query: Query) -> Result<(), StoreError> {
        let done = query.execute(self.connection()?).await;
        self.check(done).map(drop)
    }

    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.guard.connection.as_mut().ok_or_else(|| self.place.error(sqlx::Error::WorkerCrashed))
    }

    /// Marks the beginning of a transaction that a statement begins. [`end`](Self::end) marks its end: a connection
    /// that is dropped in between rolls back.
    ///
    /// sqlx's own transaction is not used: it needs a round trip for each end, and loses count if SQLite itself rolls
    /// back after a disk error.
    pub(super) fn begin(&mut self) {
        self.guard.open = true;
    }

    /// Rolls back what was not committed.
    pub(super) async fn end<T>(&mut self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_err() {
            self.roll_back().await;
        }
        self.guard.open = false;
        done
    }

    async fn roll_back(&mut self) {
        if let Some(connection) = &mut self.guard.connection {
            // Fails if SQLite has rolled back already.
            let done = sqlx::raw_sql("ROLLBACK").execute(connection).await;
            let _ = self.check(done);
        }
        self.guard.open = false;
    }

    pub(super) fn check<T>(&mut self, done: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        if matches!(done, Err(sqlx::Error::WorkerCrashed)) {
            self.guard.connection = None;
        }
        done.map_err(|error| self.place.error(error))
    }
}

impl Drop for ConnectionGuard<'_> {
    /// Closes the connection of a transaction that was dropped halfway, which rolls back at once: other processes do
    /// not wait until this process sends another statement. A database in memory would end with its connection, and no
    /// other process waits for it: there, the next call rolls back.
    fn drop(&mut self) {
        if self.guard.open && !self.place.in_memory {
            *self.guard = ConnectionState::default();
        }
    }
}
