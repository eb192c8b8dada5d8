//! Execution of single statements on a connection of the pool.
use std::time::Duration;

use idempotent_core::StoreError;
use tokio::time::timeout;

#[cfg(feature = "postgres")]
use super::driver::Query;
use super::driver::{Connection, Contention, Driver, Row};
use super::error::{ErrorContext, Phase};
use super::pool::Pool;
use super::statement::BoundStatement;

#[derive(Debug)]
pub(crate) struct StatementRunner<D: Driver> {
    pub(crate) pool: Pool<D::Db>,
    /// A pool for the transactions of runs, as sqlx's transactions belong to an sqlx pool. It connects on demand.
    pub(crate) transactions: sqlx::Pool<D::Db>,
    pub(crate) place: ErrorContext,
    /// The timeout for a connection, and then for an answer.
    pub(crate) patience: Duration,
}

pub(crate) enum StatementResult<T> {
    Done(T),
    /// The statement met a conflict and had no effect. It can be sent again.
    Contended(Contention, StoreError),
}

/// Returns the result of a statement that is not retried after a conflict.
pub(crate) fn settled<T>(sent: StatementResult<T>) -> Result<T, StoreError> {
    match sent {
        StatementResult::Done(done) => Ok(done),
        StatementResult::Contended(_, error) => Err(error),
    }
}

impl<T> StatementResult<T> {
    pub(crate) fn map<U>(
        self,
        told: impl FnOnce(T) -> Result<U, StoreError>,
    ) -> Result<StatementResult<U>, StoreError> {
        Ok(match self {
            Self::Done(done) => StatementResult::Done(told(done)?),
            Self::Contended(how, error) => StatementResult::Contended(how, error),
        })
    }
}

impl<D: Driver> StatementRunner<D> {
    /// Returns the number of written rows.
    pub(crate) async fn execute(&self, ask: BoundStatement<D>) -> Result<StatementResult<u64>, StoreError> {
        self.send(async |connection| D::execute(ask.query(), connection).await).await
    }

    pub(crate) async fn first(&self, ask: BoundStatement<D>) -> Result<StatementResult<Option<Row<D>>>, StoreError> {
        self.send(async |connection| D::first(ask.query(), connection).await).await
    }

    /// Returns the first row of a query with values of the caller, or `None` if the server refused the statement. A refused
    /// statement has no effect.
    #[cfg(feature = "postgres")]
    pub(crate) async fn first_unless_refused(&self, query: Query<D>) -> Result<Option<Row<D>>, StoreError> {
        match self.ask(async |connection| D::first(query, connection).await).await? {
            Ok(row) => Ok(row),
            Err(error) if is_answer::<D>(&error) => Ok(None),
            Err(error) => Err(self.place.error::<D>(Phase::Executing, error)),
        }
    }

    pub(crate) async fn all(&self, ask: BoundStatement<D>) -> Result<StatementResult<Vec<Row<D>>>, StoreError> {
        self.send(async |connection| D::all(ask.query(), connection).await).await
    }

    async fn send<T>(
        &self,
        ask: impl AsyncFnOnce(&mut Connection<D>) -> Result<T, sqlx::Error>,
    ) -> Result<StatementResult<T>, StoreError> {
        let contended = |error: &sqlx::Error| error.as_database_error().and_then(D::contention);
        match self.ask(ask).await? {
            Ok(answer) => Ok(StatementResult::Done(answer)),
            Err(error) => match (contended(&error), self.place.error::<D>(Phase::Executing, error)) {
                (Some(how), error) => Ok(StatementResult::Contended(how, error)),
                (None, error) => Err(error),
            },
        }
    }

    /// Returns the answer of the server, or the error of a statement without one.
    async fn ask<T>(
        &self,
        ask: impl AsyncFnOnce(&mut Connection<D>) -> Result<T, sqlx::Error>,
    ) -> Result<Result<T, sqlx::Error>, StoreError> {
        let guard = self.pool.acquire(self.patience).await;
        let guard = guard.map_err(|error| self.place.error::<D>(Phase::Connecting, error))?;
        let silent = |when| self.place.silent(when, self.patience);
        let mut guard = guard.ok_or_else(|| silent(Phase::Connecting))?;
        let connection = guard.connection().ok_or_else(|| silent(Phase::Connecting))?;
        let answer = timeout(self.patience, ask(connection)).await.map_err(|_| silent(Phase::Executing))?;
        match &answer {
            Err(error) if self.refuses_writes(error) => drop(guard),
            Err(error) if !is_answer::<D>(error) => guard.lost(),
            _ => guard.give_back(),
        }
        Ok(answer)
    }

    /// Converts the error of a statement in a transaction.
    pub(super) fn error(&self, error: sqlx::Error) -> StoreError {
        self.refuses_writes(&error);
        self.place.error::<D>(Phase::Executing, error)
    }

    /// Returns true if the server takes no writes, as a demoted primary does. No later call then uses an open connection.
    fn refuses_writes(&self, error: &sqlx::Error) -> bool {
        let refuses = !self.place.read_only && error.as_database_error().is_some_and(D::is_read_only);
        if refuses {
            self.pool.refuses_writes();
        }
        refuses
    }
}

/// Returns true if the server answered and the connection remains usable.
fn is_answer<D: Driver>(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|refused| !D::ends_connection(refused))
}
