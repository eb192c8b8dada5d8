//! The table: each decision of the HTTP adapters, except those about time.
mod callers;
mod keys;
mod outages;
mod payloads;
mod responses;
mod without_keys;

use idempotent_core::{Executor, MemoryStore};
use idempotent_tower::{Caller, IdempotencyLayer, Principal};

use crate::{Ask, Expected, Row, Step};

/// Returns all rows.
pub async fn table() -> Vec<Row> {
    let rows = [keys::rows(), callers::rows(), payloads::rows(), responses::rows(), outages::rows()];
    rows.into_iter().flatten().chain(without_keys::rows().await).collect()
}

/// Takes the caller from `X-User`. All others are anonymous.
pub fn by_user() -> Principal {
    Principal::from_fn(|head| {
        let user = head.headers.get("x-user").and_then(|user| user.to_str().ok());
        Ok(user.map_or_else(Caller::anonymous, Caller::named))
    })
}

fn executor() -> Executor {
    Executor::new(MemoryStore::new())
}

/// Returns a layer with defaults.
fn layer() -> IdempotencyLayer {
    IdempotencyLayer::new(executor(), by_user())
}

/// Returns a row that sends one request after the other.
fn row(name: &'static str, layer: IdempotencyLayer, runs: u32, steps: Vec<(Ask, Expected)>) -> Row {
    Row { name, layer, steps: steps.into_iter().map(|(ask, expected)| Step::Send(ask, expected)).collect(), runs }
}

/// Returns an order with this key, verbatim.
fn order(key: &str) -> Ask {
    Ask::post("/orders").header("idempotency-key", key)
}
