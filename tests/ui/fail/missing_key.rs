// expect: missing `key`
use idempotent::{Rejection, idempotent};

#[idempotent(scene = mq)]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent]
async fn refund(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (charge(1), refund(1));
}
