// expect: where `E: From<idempotent::Rejection>`
use idempotent::idempotent;

struct Declined;

#[idempotent(key = order)]
async fn charge(order: u64) -> Result<u64, Declined> {
    if order == 0 { Err(Declined) } else { Ok(order) }
}

fn main() {
    let _ = charge(1);
}
