// expect: unknown argument `leese`; did you mean `lease`?
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, leese = "30s")]
async fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, expire = "30s")]
async fn refund(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (charge(1), refund(1));
}
