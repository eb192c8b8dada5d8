// expect: non-constant value
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, max_retries = limit)]
async fn charge(order: u64, limit: u32) -> Result<u64, Rejection> {
    Ok(order + u64::from(limit))
}

fn main() {
    let _ = charge(1, 2);
}
