// expect: the codec `u8` cannot store a `u64` for replay
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, codec = u8)]
async fn codec(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, reject = |_| 7)]
async fn reject(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, permanent = |error| error.gone)]
async fn permanent(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (codec(1), reject(1), permanent(1));
}
