// expect: this key names no argument, so all calls would share one key: name one, e.g. `key = (order, …)`
use idempotent::{Rejection, idempotent};

const NIGHTLY: &str = "nightly";

#[idempotent(key = NIGHTLY)]
async fn constant(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = std::process::id())]
async fn process(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = format!("order"))]
async fn formatted(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = { if order == 0 { return Ok(0) } order })]
async fn skipped(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(scene = "MQ", key = order)]
async fn misspelt(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (constant(1), process(1), formatted(1), skipped(1), misspelt(1));
}
