// expect: mismatched types
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, describe = |error| error)]
async fn describe(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = describe(1);
}
