//! A connection that its users take in turn.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::StoreError;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Sqlite};
use tokio::sync::{Mutex, MutexGuard};

use super::error::Place;

pub(super) type Query = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

/// A statement that stays prepared on its connection.
pub(super) fn query(sql: &Arc<str>) -> Query {
    sqlx::query(AssertSqlSafe(sql.clone()))
}

/// One connection and a first-come-first-served queue before it. Waiting costs nothing: SQLite's own queue is
/// a sleep that grows, which let one of 64 connections wait for a second.
///
/// Dropping a future on the way loses nothing. The connection stays here; a statement that was sent is run by
/// the connection's thread, and the next user's stands behind it.
#[derive(Debug)]
pub(super) struct Lane {
    options: SqliteConnectOptions,
    place: Arc<Place>,
    patience: Duration,
    connection: Mutex<Option<SqliteConnection>>,
}

impl Lane {
    pub(super) fn new(options: SqliteConnectOptions, place: Arc<Place>, connection: Option<SqliteConnection>) -> Self {
        // Behind a caller that waits for another process's lock there is time for one more such wait.
        let patience = place.busy_timeout.saturating_mul(2).max(Duration::from_secs(1));
        Self { options, place, patience, connection: Mutex::new(connection) }
    }

    /// This caller's turn.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, StoreError> {
        // No timer while nobody waits. The queue is fair: a free lane means an empty queue.
        let guard = match self.connection.try_lock() {
            Ok(guard) => guard,
            Err(_) => tokio::time::timeout(self.patience, self.connection.lock())
                .await
                .map_err(|_| self.place.no_turn(self.patience))?,
        };
        let mut turn = Turn { guard, place: &self.place };
        if turn.guard.is_none() {
            let connection = self.options.connect().await.map_err(|error| self.place.error(error))?;
            *turn.guard = Some(connection);
        }
        Ok(turn)
    }

    /// Whether somebody has it right now.
    pub(super) fn is_taken(&self) -> bool {
        self.connection.try_lock().is_err()
    }
}

/// The right to use a [`Lane`]'s connection.
pub(super) struct Turn<'a> {
    guard: MutexGuard<'a, Option<SqliteConnection>>,
    place: &'a Place,
}

impl Turn<'_> {
    /// Runs to the end, the commit included; says how many rows were written.
    pub(super) async fn execute(&mut self, query: Query) -> Result<u64, StoreError> {
        let done = query.execute(self.connection()?).await;
        self.check(done).map(|done| done.rows_affected())
    }

    /// The first row. Only the last statement of a query that writes may give one: what is left after a row is
    /// reset without a word, and so would be an error of its commit.
    pub(super) async fn first(&mut self, query: Query) -> Result<Option<SqliteRow>, StoreError> {
        let row = query.fetch_optional(self.connection()?).await;
        self.check(row)
    }

    /// All rows.
    pub(super) async fn all(&mut self, query: Query) -> Result<Vec<SqliteRow>, StoreError> {
        let rows = query.fetch_all(self.connection()?).await;
        self.check(rows)
    }

    /// The connection itself, for transactions.
    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.guard.as_mut().ok_or_else(|| self.place.error(sqlx::Error::WorkerCrashed))
    }

    /// A connection whose thread has ended is given up.
    pub(super) fn check<T>(&mut self, done: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        if matches!(done, Err(sqlx::Error::WorkerCrashed)) {
            *self.guard = None;
        }
        done.map_err(|error| self.place.error(error))
    }
}
