//! The state of the handlers.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use idempotent::store::{Entropy, OsEntropy};
use idempotent::{Executor, Tokens};

use crate::numbers::KeyCounters;
use crate::order::{Order, OrderFailed};

/// The state of the handlers. Clones share it.
#[derive(Clone)]
pub(crate) struct Shop(Arc<ShopState>);

struct ShopState {
    executor: Executor,
    tokens: Tokens,
    numbers: KeyCounters,
    /// Runs by `sku`: the effect that must not be repeated.
    executions: Mutex<HashMap<String, u64>>,
}

impl Shop {
    pub(crate) fn new(executor: Executor, tokens: Tokens, numbers: KeyCounters) -> Self {
        Self(Arc::new(ShopState { executor, tokens, numbers, executions: Mutex::default() }))
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn numbers(&self) -> &KeyCounters {
        &self.0.numbers
    }

    /// Places an order and returns its id, which differs for each run.
    pub(crate) async fn place(&self, order: &Order) -> Result<String, OrderFailed> {
        let run = self.ran(&order.sku);
        if order.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(order.delay_ms)).await;
        }
        order.rehearse(run)?;
        let bits = OsEntropy.bits().map_err(|_| OrderFailed(StatusCode::INTERNAL_SERVER_ERROR))?;
        Ok(format!("{bits:032x}"))
    }

    /// Counts a run and returns the number of runs.
    pub(crate) fn ran(&self, sku: &str) -> u64 {
        let mut executions = self.locked();
        let count = executions.entry(sku.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn executions(&self, sku: &str) -> u64 {
        self.locked().get(sku).copied().unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.executions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Annotated handlers take the executor from the state.
impl AsRef<Executor> for Shop {
    fn as_ref(&self) -> &Executor {
        &self.0.executor
    }
}
