// expect: `on` is generic, and its name is the scope: with another type, an equal key would pass for a duplicate
use idempotent::{Rejection, idempotent};

#[idempotent(key = order)]
async fn on<E>(order: u64, event: E) -> Result<u64, Rejection> {
    drop(event);
    Ok(order)
}

#[idempotent(key = order)]
async fn sized<const N: usize>(order: u64, lines: [u8; N]) -> Result<usize, Rejection> {
    Ok(lines.len() + usize::from(order > 0))
}

#[idempotent(key = order)]
async fn opaque(order: u64, notify: impl Fn(u64)) -> Result<u64, Rejection> {
    notify(order);
    Ok(order)
}

fn main() {
    let _ = (on(1, "paid"), sized(1, [2]), opaque(1, drop));
}
