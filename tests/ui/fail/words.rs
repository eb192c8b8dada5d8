// expect: `on_expiry` is `takeover` or `park`
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, on_expiry = steal)]
async fn expiry(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, on_lease_lost = finnish)]
async fn lease_lost(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, on_store_error = "fail")]
async fn store_error(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, on_in_flight = wait)]
async fn in_flight(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, retain = always)]
async fn retain(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, max_retries = "3")]
async fn retries(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, max_result = "1 megabyt")]
async fn result(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, scope = 7)]
async fn scope(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (expiry(1), lease_lost(1), store_error(1), in_flight(1), retain(1), retries(1), result(1), scope(1));
}
