// expect: lease must be shorter than retention
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, lease = "10m", retain = "10m")]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, lease = "10m", max_run = "1m")]
async fn refund(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (charge(1), refund(1));
}
