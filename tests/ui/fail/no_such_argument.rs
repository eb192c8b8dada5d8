// expect: no argument named `msg`
use idempotent::{Rejection, idempotent};

struct Order {
    id: u64,
}

#[idempotent(key = msg.id)]
async fn none() -> Result<(), Rejection> {
    Ok(())
}

#[idempotent(key = (order.id, &msg.id))]
async fn other(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(key = oder.id, tenant = order.id)]
async fn slip(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

#[idempotent(key = self.id)]
async fn free(order: Order) -> Result<u64, Rejection> {
    Ok(order.id)
}

impl Order {
    #[idempotent(key = id, fingerprint = body)]
    async fn method(&self) -> Result<u64, Rejection> {
        Ok(self.id)
    }
}

fn main() {
    let order = || Order { id: 1 };
    let _ = (none(), other(order()), slip(order()), free(order()));
    let _ = order().method();
}
