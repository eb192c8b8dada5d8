//! The target of a statement: a connection of the store, or an open transaction.
use idempotent_core::{Key, StoreError, StoreErrorKind};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::driver::{Connection, Driver, Row};
use super::error::Phase;
use super::runner::{StatementResult, settled};
use super::statement::BoundStatement;
use super::store::{FoundRecord, ServerStore};
use super::value::id;
use crate::inbox::rolled_back;

pub(crate) struct StatementTarget<'a, D: Driver> {
    pub(crate) store: &'a ServerStore<D>,
    open: Option<&'a mut Connection<D>>,
}

impl<'a, D: Driver> StatementTarget<'a, D> {
    /// Creates a target that sends each statement to a connection of the pool, as a transaction of its own.
    pub(crate) fn pool(store: &'a ServerStore<D>) -> Self {
        Self { store, open: None }
    }

    /// Creates a target that sends statements to the open transaction of a connection. An error of kind `RolledBack` means that
    /// this transaction has ended.
    pub(crate) fn within(store: &'a ServerStore<D>, connection: &'a mut Connection<D>) -> Self {
        Self { store, open: Some(connection) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the number of written rows.
    pub(crate) async fn execute(&mut self, ask: BoundStatement<D>) -> Result<StatementResult<u64>, StoreError> {
        let (store, patience) = (self.store, self.store.runner.patience);
        match &mut self.open {
            None => store.runner.execute(ask).await,
            Some(connection) => checked(store, timeout(patience, D::execute(ask.query(), connection)).await),
        }
    }

    /// Returns the first row.
    pub(crate) async fn first(
        &mut self,
        ask: BoundStatement<D>,
    ) -> Result<StatementResult<Option<Row<D>>>, StoreError> {
        let (store, patience) = (self.store, self.store.runner.patience);
        match &mut self.open {
            None => store.runner.first(ask).await,
            Some(connection) => checked(store, timeout(patience, D::first(ask.query(), connection)).await),
        }
    }

    pub(crate) async fn look(&mut self, key: &Key) -> Result<StatementResult<Option<FoundRecord>>, StoreError> {
        let store = self.store;
        let text = if self.is_open() { &store.in_transaction.look } else { &store.texts.look };
        let row = self.first(store.timed(BoundStatement::new(text).bind(id(key)))).await?;
        row.map(|row| row.map(|row| store.seen(&row)).transpose())
    }
}

impl<D: Driver> ServerStore<D> {
    pub(crate) async fn look(&self, key: &Key) -> Result<Option<FoundRecord>, StoreError> {
        settled(StatementTarget::pool(self).look(key).await?)
    }
}

/// Converts the result of a statement within a transaction.
fn checked<D: Driver, T>(
    store: &ServerStore<D>,
    answer: Result<Result<T, sqlx::Error>, Elapsed>,
) -> Result<StatementResult<T>, StoreError> {
    let place = &store.runner.place;
    let Ok(answer) = answer else {
        // A transaction with an unanswered statement is never committed.
        return Err(rolled_back(&place.silent(Phase::Executing, store.runner.patience)));
    };
    let error = match answer {
        Ok(done) => return Ok(StatementResult::Done(done)),
        Err(error) => error,
    };
    let refused = error.as_database_error();
    let (over, how) = (refused.is_some_and(|refused| store.dialect.ends(refused)), refused.and_then(D::contention));
    match (how, store.runner.error(error)) {
        // The connection is lost, or the transaction has failed.
        (_, error) if over || error.kind() == StoreErrorKind::Ambiguous => Err(rolled_back(&error)),
        (Some(how), error) => Ok(StatementResult::Contended(how, error)),
        (None, error) => Err(error),
    }
}
