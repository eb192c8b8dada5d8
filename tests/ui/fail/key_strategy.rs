// expect: is not a key strategy for
use idempotent::key::{DerivedKey, KeyStrategy, Scene};
use idempotent::{Rejection, idempotent};

struct Order {
    id: u64,
}

struct ById;

impl KeyStrategy<Order> for ById {
    fn derive(&self, _scene: &Scene, order: &Order) -> DerivedKey {
        DerivedKey::new(&order.id)
    }
}

struct Other;

#[idempotent(by = Other, key = order)]
async fn not_a_strategy(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(by = ById, key = order.id)]
async fn another_source(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(by = ById)]
async fn no_source(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(by = order, key = order)]
async fn a_lowercase_word(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(by = ById, key = order, window = "5s")]
async fn window(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

fn main() {
    let order = || Order { id: 1 };
    let _ = (not_a_strategy(order()), another_source(order()), no_source(order()), a_lowercase_word(order()), window(order()));
}
