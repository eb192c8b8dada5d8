//! Where a statement is sent: alone to a connection of the store's, or within somebody's transaction.
use idempotent_core::{Key, StoreError, StoreErrorKind};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::driver::{Connection, Driver, Row};
use super::error::When;
use super::link::{Sent, settled};
use super::statement::Ask;
use super::store::{Plan, Seen};
use super::value::id;
use crate::inbox::rolled_back;

pub(crate) struct Via<'a, D: Driver> {
    pub(crate) plan: &'a Plan<D>,
    open: Option<&'a mut Connection<D>>,
}

impl<'a, D: Driver> Via<'a, D> {
    /// A transaction of its own.
    pub(crate) fn pool(plan: &'a Plan<D>) -> Self {
        Self { plan, open: None }
    }

    /// The transaction that is open on this connection. An error of kind `RolledBack` says that it is over.
    pub(crate) fn within(plan: &'a Plan<D>, connection: &'a mut Connection<D>) -> Self {
        Self { plan, open: Some(connection) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// How many rows were written.
    pub(crate) async fn execute(&mut self, ask: Ask<D>) -> Result<Sent<u64>, StoreError> {
        let (plan, patience) = (self.plan, self.plan.link.patience);
        match &mut self.open {
            None => plan.link.execute(ask).await,
            Some(connection) => told(plan, timeout(patience, D::execute(ask.query(), connection)).await),
        }
    }

    /// The first row.
    pub(crate) async fn first(&mut self, ask: Ask<D>) -> Result<Sent<Option<Row<D>>>, StoreError> {
        let (plan, patience) = (self.plan, self.plan.link.patience);
        match &mut self.open {
            None => plan.link.first(ask).await,
            Some(connection) => told(plan, timeout(patience, D::first(ask.query(), connection)).await),
        }
    }

    /// What stands there.
    pub(crate) async fn look(&mut self, key: &Key) -> Result<Sent<Option<Seen>>, StoreError> {
        let plan = self.plan;
        let text = if self.is_open() { &plan.inside.look } else { &plan.texts.look };
        let row = self.first(plan.timed(Ask::new(text).bind(id(key)))).await?;
        row.map(|row| row.map(|row| plan.seen(&row)).transpose())
    }
}

impl<D: Driver> Plan<D> {
    pub(crate) async fn look(&self, key: &Key) -> Result<Option<Seen>, StoreError> {
        settled(Via::pool(self).look(key).await?)
    }
}

/// What a statement within a transaction came to.
fn told<D: Driver, T>(plan: &Plan<D>, answer: Result<Result<T, sqlx::Error>, Elapsed>) -> Result<Sent<T>, StoreError> {
    let place = &plan.link.place;
    let Ok(answer) = answer else {
        // Nobody commits what nobody answered.
        return Err(rolled_back(&place.silent(When::Asking, plan.link.patience)));
    };
    let error = match answer {
        Ok(done) => return Ok(Sent::Done(done)),
        Err(error) => error,
    };
    let refused = error.as_database_error();
    let (over, how) = (refused.is_some_and(|refused| plan.dialect.ends(refused)), refused.and_then(D::hindrance));
    match (how, place.error::<D>(When::Asking, error)) {
        // Without its connection, or its good standing.
        (_, error) if over || error.kind() == StoreErrorKind::Ambiguous => Err(rolled_back(&error)),
        (Some(how), error) => Ok(Sent::Hindered(how, error)),
        (None, error) => Err(error),
    }
}
