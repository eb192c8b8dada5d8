// expect: an idempotent handler cannot return `()`
use idempotent::idempotent;

#[idempotent(key = order)]
async fn charge(order: u64) {
    let _ = order;
}

fn main() {
    let _ = charge(1);
}
