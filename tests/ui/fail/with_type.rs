// expect: `u64` does not contain an executor
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, with = order)]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = charge(1);
}
