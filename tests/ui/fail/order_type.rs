// expect: `f64` does not identify a predecessor
use idempotent::{Rejection, idempotent};

#[idempotent(key = number, after = before)]
async fn a_float(number: u64, before: f64) -> Result<u64, Rejection> {
    Ok(number)
}

fn main() {
    let _ = a_float;
}
