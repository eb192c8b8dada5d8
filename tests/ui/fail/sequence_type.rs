// expect: `f64` does not identify a stream
use idempotent::{Rejection, idempotent};

#[idempotent(key = number, sequence = (stream, number))]
async fn a_float(stream: f64, number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, sequence = (stream, number))]
async fn below_zero(stream: u64, number: i64) -> Result<i64, Rejection> {
    Ok(number)
}

fn main() {
    let _ = (a_float, below_zero);
}
