// expect: name a strategy that knows the type: `reply = …`
use idempotent::idempotent;

#[idempotent(key = order)]
async fn charge(order: u64) -> impl std::fmt::Display {
    order
}

fn main() {
    let _ = charge(1);
}
