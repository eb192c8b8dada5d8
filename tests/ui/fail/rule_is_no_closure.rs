// expect: `permanent` is a closure over the error: `permanent = |error| …`
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, permanent = true)]
async fn permanent(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, failed_if = true)]
async fn failed_if(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, describe = "no stock")]
async fn describe(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, reject = 503)]
async fn reject(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (permanent(1), failed_if(1), describe(1), reject(1));
}
