// expect: the codec `Json` cannot store a `Receipt` for replay
use idempotent::{Rejection, idempotent};

struct Receipt(u64);

#[idempotent(key = order)]
async fn charge(order: u64) -> Result<Receipt, Rejection> {
    Ok(Receipt(order))
}

fn main() {
    let _ = charge(1);
}
