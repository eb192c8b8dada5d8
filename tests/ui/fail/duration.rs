// expect: "5 minuts": unknown unit `minuts` at character 3; units: ms, s, m, h
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, lease = "5 minuts")]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, lease = 30)]
async fn number(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, retain = 7d)]
async fn suffix(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, max_run = "10")]
async fn no_unit(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, on_in_flight = wait("2x"))]
async fn wait(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, on_in_flight = wait(2))]
async fn wait_for_a_number(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (charge(1), number(1), suffix(1), no_unit(1), wait(1));
}
