//! The smallest program: a duplicate gets the recorded receipt, and the handler does not run again.
#![allow(clippy::print_stdout, reason = "it shows what runs")]
use idempotent::{Executor, MemoryStore, Rejection, idempotent};

#[idempotent(scene = mq, key = order)]
async fn charge(order: &str) -> Result<u32, Rejection> {
    println!("charging {order}");
    Ok(40)
}

#[tokio::main]
async fn main() -> Result<(), Rejection> {
    tracing_subscriber::fmt().init();
    let executor = Executor::new(MemoryStore::new());
    for _ in 0..2 {
        println!("receipt: {}", executor.scope(charge("o-17")).await?);
    }
    Ok(())
}
