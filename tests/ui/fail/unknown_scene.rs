// expect: unknown scene `http`; known: `mq` or `rest`
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, scene = http)]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, scene = "rest")]
async fn refund(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (charge(1), refund(1));
}
