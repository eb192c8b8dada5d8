// expect: an idempotent handler cannot return `u64`
use idempotent::idempotent;

#[idempotent(key = order)]
async fn charge(order: u64) -> u64 {
    order
}

fn main() {
    let _ = charge(1);
}
