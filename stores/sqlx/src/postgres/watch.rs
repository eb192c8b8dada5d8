//! Waiting for the end of a run by notifications of the server.
use std::time::Duration;

use idempotent_core::{Key, StoreError, Watch, Watching};
use tokio::time::{sleep, timeout};

use super::PostgresStore;
use super::listener::SettlementListener;
use crate::server::{BoundStatement, Driver, ServerStore, id, settled};

/// The first and the longest polling interval without a subscription. The interval doubles.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The polling interval with a subscription, as the rollback of a caller's transaction sends no notification.
const BACKSTOP: Duration = Duration::from_secs(5);

impl Watch for PostgresStore {
    fn watch(&self, key: &Key) -> Watching {
        // Without a listener, the store does not have this capability.
        let Some(listener) = &self.0.dialect.listener else { return Box::pin(std::future::pending()) };
        // The waiter is registered now, and polled later.
        let woken = listener.waiters.watch(key.hash());
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let Some(listener) = &store.0.dialect.listener else { return };
            tokio::select! {
                biased;
                () = woken => {}
                () = store.settled(listener, &key) => {}
            }
        })
    }
}

impl PostgresStore {
    /// Subscribes, and polls the record. A run that ends after the subscription sends a notification.
    async fn settled(&self, listener: &SettlementListener, key: &Key) {
        let (mut subscription, mut pause) = (None, POLL.0);
        let mut subscribing = Box::pin(listener.subscribe(key.hash()));
        loop {
            if subscription.is_none() {
                // The subscription continues across polls, because connecting may take long.
                match timeout(pause, &mut subscribing).await {
                    Ok(Some(found)) => subscription = Some(found),
                    Ok(None) => subscribing = Box::pin(listener.subscribe(key.hash())),
                    Err(_) => {}
                }
            }
            match self.is_held(key).await {
                Ok(false) => return,
                Ok(true) if subscription.is_some() => sleep(BACKSTOP).await,
                // A failed query is repeated soon, since the run may have ended before the subscription.
                _ => sleep(pause).await,
            }
            pause = (pause * 2).min(POLL.1);
        }
    }

    async fn is_held(&self, key: &Key) -> Result<bool, StoreError> {
        let ServerStore { dialect, runner, .. } = &*self.0;
        let ask = BoundStatement::new(&dialect.own_statements.is_held).bind(id(key)).bind(dialect.lock(key));
        let row = settled(runner.first(ask).await?)?;
        Ok(row.map(|row| self.0.number(&row, 0)).transpose()? != Some(0))
    }
}
