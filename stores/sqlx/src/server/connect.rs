//! The connection that opens a store, and the options of its pools.
use std::time::Duration;

use idempotent_core::StoreError;
use sqlx::pool::PoolOptions;
use sqlx::{Connection as _, Database};
use tokio::time::timeout;

use super::driver::{Connection, Driver};
use super::error::{ErrorContext, Phase};
use super::pool::LastRefusal;
use super::settings::{ServerSettings, ServerTarget};

pub(crate) async fn connect<D: Driver>(
    options: &<Connection<D> as sqlx::Connection>::Options,
    place: &ErrorContext,
    patience: Duration,
) -> Result<Connection<D>, StoreError> {
    let connection = timeout(patience, Connection::<D>::connect_with(options)).await;
    let connection = connection.map_err(|_| place.silent(Phase::Connecting, patience))?;
    connection.map_err(|error| place.error::<D>(Phase::Connecting, error))
}

impl<DB: Database> ServerSettings<sqlx::Pool<DB>> {
    /// Returns the settings of a second store for renewals, which has one connection of its own.
    pub(crate) fn again(&self) -> Self {
        let target = match &self.target {
            ServerTarget::Pool(pool) => {
                let one = pool.options().clone().max_connections(1).min_connections(0);
                ServerTarget::Pool(one.connect_lazy_with((*pool.connect_options()).clone()))
            }
            url @ ServerTarget::Url(_) => url.clone(),
        };
        Self {
            target,
            table: self.table.clone(),
            schema: self.schema.clone(),
            // The first store has compared its tables with the setting.
            partitions: None,
            connections: 1,
            create: false,
            read_only: self.read_only,
            patience: self.patience,
            clock: self.clock.clone(),
        }
    }
}

impl<P> ServerSettings<P> {
    /// Returns the options of a pool for transactions, which shares the refusals of the store's own pool.
    pub(crate) fn pool_options<DB: Database>(&self, refused: LastRefusal) -> PoolOptions<DB> {
        PoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(self.patience)
            // The test is a round trip before each statement. The statement itself detects a dead connection.
            .test_before_acquire(false)
            .before_acquire(move |_, connection| {
                let usable = !refused.outdates(connection.age);
                Box::pin(async move { Ok(usable) })
            })
    }
}
