// expect: `key` is given twice
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, detach, key = order)]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = charge(1);
}
