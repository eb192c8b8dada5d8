// expect: `u64` holds no executor
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, with = order)]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = charge(1);
}
