// expect: key must not be empty
use idempotent::{Rejection, idempotent};

#[idempotent(key = "")]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = (order, ""))]
async fn refund(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (charge(1), refund(1));
}
