// expect: cannot be part of an idempotency key
use idempotent::{Rejection, idempotent};

const ONE: u8 = 1;

struct Order {
    total: f64,
}

#[idempotent(key = order.total)]
async fn float(order: Order) -> Result<f64, Rejection> {
    Ok(order.total)
}

#[idempotent(key = order)]
async fn whole(order: Order) -> Result<f64, Rejection> {
    Ok(order.total)
}

#[idempotent(key = const { ONE }, tenant = order.total)]
async fn tenant(order: Order) -> Result<f64, Rejection> {
    Ok(order.total)
}

#[idempotent(key = const { ONE }, fingerprint = order)]
async fn fingerprint(order: Order) -> Result<f64, Rejection> {
    Ok(order.total)
}

fn main() {
    let order = || Order { total: 1.0 };
    let _ = (float(order()), whole(order()), tenant(order()), fingerprint(order()));
}
