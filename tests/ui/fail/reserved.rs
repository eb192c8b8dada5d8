// expect: there is no argument `version`
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, version = order)]
async fn version(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(scene = rest, key = order, on_in_flight = ack)]
async fn ack(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (version(1), ack(1));
}
