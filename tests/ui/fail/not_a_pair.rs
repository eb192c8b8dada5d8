// expect: an argument is `name = value`
use idempotent::{Rejection, idempotent};

#[idempotent("order")]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key)]
async fn refund(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, detach = true)]
async fn cancel(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (charge(1), refund(1), cancel(1));
}
