// expect: future cannot be sent between threads safely
use std::rc::Rc;

use idempotent::{Rejection, idempotent};

#[idempotent(key = order)]
async fn charge(order: u64) -> Result<u64, Rejection> {
    let total = Rc::new(order);
    tokio::task::yield_now().await;
    Ok(*total)
}

fn spawn<F: Future + Send + 'static>(_: F) {}

fn main() {
    spawn(charge(1));
}
