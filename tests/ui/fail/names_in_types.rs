// expect: cannot find type `Unknown` in this scope
use idempotent::{Rejection, idempotent};

#[idempotent(key = order)]
async fn charge(order: u64) -> Result<u64, Unknown> {
    Ok(order)
}

#[idempotent(key = hash(order))]
async fn key(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, codec = Missing)]
async fn codec(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order)]
async fn body(order: u64) -> Result<u64, Rejection> {
    Ok(order + missing)
}

fn main() {
    let _ = (charge(1), key(1), codec(1), body(1));
}
