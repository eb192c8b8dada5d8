//! Consumes a stream of NATS JetStream: each order is charged once, however often it is sent or delivered.
//!
//! ```text
//! cargo run -p idempotent-examples --features nats --example nats -- nats://127.0.0.1:4222
//! nats pub orders.new '{"number": 1, "cents": 500}'    # charged
//! nats pub orders.new '{"number": 1, "cents": 500}'    # sent twice: acknowledged, not charged
//! nats pub orders.new '{"number": 2, "cents": 0}'      # fails, and is retried
//! nats pub orders.new 'what?'                          # dead-lettered at once
//! nats stream view ORDERS-dead
//! ```
//!
//! The keys are in the file `nats.db`, or in the one that a second argument names, so several processes on one machine share them.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use idempotent::mq::{Consumer, Message, Messages};
use idempotent::nats::JetStreamSource;
use idempotent::{Executor, SqliteStore, idempotent};
use tokio::signal::unix::{SignalKind, signal};

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

#[idempotent(scene = mq, scope = "charge", key = message.body.number)]
async fn charge(message: Message<Order>) -> anyhow::Result<()> {
    let Order { number, cents } = message.body;
    anyhow::ensure!(cents > 0, "nothing to charge");
    println!("order {number}: charged {cents} cents");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
    let keys = arguments.next().unwrap_or_else(|| "nats.db".to_owned());
    let source = JetStreamSource::builder(url, "ORDERS", "billing").declare(["orders.>"]).connect().await?;
    let executor = Executor::new(SqliteStore::open(keys).await?);
    let consumer = Consumer::builder(source, "billing", &executor).build(Messages::json().annotated(charge))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {} _ = tokio::signal::ctrl_c() => {} }
    };
    let counts = consumer.run(stop).await?;
    println!("{} acknowledged, {} retried, {} dead-lettered", counts.acked, counts.retried, counts.dead_lettered);
    Ok(())
}
