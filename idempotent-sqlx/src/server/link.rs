//! One statement on a connection of the pool.
use std::time::Duration;

use idempotent_core::StoreError;
use tokio::time::timeout;

use super::driver::{Connection, Driver, Row};
use super::error::{Place, When};
use super::pool::Pool;
use super::refusal::Hindrance;
use super::statement::Ask;

#[derive(Debug)]
pub(crate) struct Link<D: Driver> {
    pub(crate) pool: Pool<D::Db>,
    /// For the transactions of runs, which are guards of a pool of this kind. Its connections are made when needed.
    pub(crate) transactions: sqlx::Pool<D::Db>,
    pub(crate) place: Place,
    /// For a connection, and then for an answer.
    pub(crate) patience: Duration,
}

/// What a statement came to.
pub(crate) enum Sent<T> {
    Done(T),
    /// Others were in the way, and nothing was done: to be sent again.
    Hindered(Hindrance, StoreError),
}

/// For a statement that nobody's claim is in the way of.
pub(crate) fn settled<T>(sent: Sent<T>) -> Result<T, StoreError> {
    match sent {
        Sent::Done(done) => Ok(done),
        Sent::Hindered(_, error) => Err(error),
    }
}

impl<T> Sent<T> {
    pub(crate) fn map<U>(self, told: impl FnOnce(T) -> Result<U, StoreError>) -> Result<Sent<U>, StoreError> {
        Ok(match self {
            Self::Done(done) => Sent::Done(told(done)?),
            Self::Hindered(how, error) => Sent::Hindered(how, error),
        })
    }
}

impl<D: Driver> Link<D> {
    /// How many rows were written.
    pub(crate) async fn execute(&self, ask: Ask<D>) -> Result<Sent<u64>, StoreError> {
        self.send(async |connection| D::execute(ask.query(), connection).await).await
    }

    /// The first row.
    pub(crate) async fn first(&self, ask: Ask<D>) -> Result<Sent<Option<Row<D>>>, StoreError> {
        self.send(async |connection| D::first(ask.query(), connection).await).await
    }

    /// All rows.
    pub(crate) async fn all(&self, ask: Ask<D>) -> Result<Sent<Vec<Row<D>>>, StoreError> {
        self.send(async |connection| D::all(ask.query(), connection).await).await
    }

    async fn send<T>(
        &self,
        ask: impl AsyncFnOnce(&mut Connection<D>) -> Result<T, sqlx::Error>,
    ) -> Result<Sent<T>, StoreError> {
        let line = self.pool.line(self.patience).await;
        let line = line.map_err(|error| self.place.error::<D>(When::Connecting, error))?;
        let silent = |when| self.place.silent(when, self.patience);
        let mut line = line.ok_or_else(|| silent(When::Connecting))?;
        let connection = line.connection().ok_or_else(|| silent(When::Connecting))?;
        let answer = timeout(self.patience, ask(connection)).await.map_err(|_| silent(When::Asking))?;
        match &answer {
            Err(error) if !is_answer(error) => line.lost(),
            _ => line.give_back(),
        }
        let hindered = |error: &sqlx::Error| error.as_database_error().and_then(D::hindrance);
        match answer {
            Ok(answer) => Ok(Sent::Done(answer)),
            Err(error) => match (hindered(&error), self.place.error::<D>(When::Asking, error)) {
                (Some(how), error) => Ok(Sent::Hindered(how, error)),
                (None, error) => Err(error),
            },
        }
    }
}

/// Whether the server answered, on a connection that goes on.
fn is_answer(error: &sqlx::Error) -> bool {
    let state = error.as_database_error().map(|refused| refused.code().unwrap_or_default());
    // 70: MariaDB ended the connection, or the statement, by KILL.
    state.is_some_and(|state| !["08", "57P", "70"].iter().any(|gone| state.starts_with(gone)))
}
