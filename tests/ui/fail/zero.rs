// expect: `lease` must be > 0
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, lease = 0)]
async fn bare(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, lease = "0s")]
async fn quoted(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, max_result = "0B")]
async fn size(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (bare(1), quoted(1), size(1));
}
