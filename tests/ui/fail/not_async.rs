// expect: needs an async fn: write `async fn charge`
use idempotent::{Rejection, idempotent};

#[idempotent(key = order)]
fn charge(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order)]
fn refund(order: u64) -> impl Future<Output = Result<u64, Rejection>> {
    async move { Ok(order) }
}

fn main() {
    let _ = (charge(1), refund(1));
}
