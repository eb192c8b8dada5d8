// expect: `by` is `key`, `token` or `param`
use idempotent::{Rejection, idempotent};

#[idempotent(by = tokn, key = order)]
async fn slip(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = "param")]
async fn quoted(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, window = "5s")]
async fn window(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, by = key, ttl = "5s")]
async fn ttl(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, replay)]
async fn replay(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, token = order)]
async fn token(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (slip(1), quoted(1), window(1), ttl(1), replay(1), token(1));
}
