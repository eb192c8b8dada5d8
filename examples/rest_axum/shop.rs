//! What the handlers share.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use idempotent::{Entropy, Executor, OsEntropy, Tokens};

use crate::numbers::Numbers;
use crate::order::{Failed, Order};

/// Cheap to clone: clones share everything.
#[derive(Clone)]
pub(crate) struct Shop(Arc<Inner>);

struct Inner {
    executor: Executor,
    tokens: Tokens,
    numbers: Numbers,
    /// Runs by `sku`: the effect that must not happen twice.
    executions: Mutex<HashMap<String, u64>>,
}

impl Shop {
    pub(crate) fn new(executor: Executor, tokens: Tokens, numbers: Numbers) -> Self {
        Self(Arc::new(Inner { executor, tokens, numbers, executions: Mutex::default() }))
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.0.numbers
    }

    /// Places an order; its number is another for each run.
    pub(crate) async fn place(&self, order: &Order) -> Result<String, Failed> {
        let run = self.ran(&order.sku);
        if order.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(order.delay_ms)).await;
        }
        order.rehearse(run)?;
        let bits = OsEntropy.bits().map_err(|_| Failed(StatusCode::INTERNAL_SERVER_ERROR))?;
        Ok(format!("{bits:032x}"))
    }

    /// One more run, and how many that makes.
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

/// What annotated handlers run with.
impl AsRef<Executor> for Shop {
    fn as_ref(&self) -> &Executor {
        &self.0.executor
    }
}
