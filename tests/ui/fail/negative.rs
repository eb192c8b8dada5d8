// expect: `retain` must be > 0
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, retain = -1)]
async fn bare(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, lease = "-1s")]
async fn quoted(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, max_retries = -1)]
async fn retries(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (bare(1), quoted(1), retries(1));
}
