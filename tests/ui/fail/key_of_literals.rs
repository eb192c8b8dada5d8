// expect: this is one key for all calls; did you mean `key = order.id`?
use idempotent::{Rejection, idempotent};

struct Order {
    id: u64,
    shop: u32,
}

#[idempotent(key = "order.id")]
async fn charge(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(key = ("order.shop", &"order.id"))]
async fn refund(order: Order) -> Result<u64, Rejection> {
    Ok(order.id + u64::from(order.shop))
}

#[idempotent(key = "msg.id")]
async fn cancel(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(key = 1)]
async fn number(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(key = (1u8, "nightly".to_owned()))]
async fn nightly() -> Result<(), Rejection> {
    Ok(())
}

fn main() {
    let order = || Order { id: 1, shop: 2 };
    let _ = (charge(order()), refund(order()), cancel(order()), number(order()), nightly());
}
