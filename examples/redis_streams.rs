//! Consumes a Redis stream: orders are charged once each, however often they are sent or delivered.
//!
//! ```text
//! cargo run -p idempotent-examples --features redis --example redis_streams -- redis://127.0.0.1:6379
//! redis-cli XADD orders '*' body '{"number": 1, "cents": 500}'    # charged
//! redis-cli XADD orders '*' body '{"number": 1, "cents": 500}'    # sent twice: acknowledged, not charged
//! redis-cli XADD orders '*' body '{"number": 2, "cents": 0}'      # fails and is retried
//! redis-cli XADD orders '*' body 'what?'                          # dead-lettered at once
//! redis-cli XRANGE orders:dead - +
//! redis-cli XADD orders '*' body '{"number": 3, "cents": 500, "takes_ms": 5000}'
//! ```
//!
//! Start it twice, and kill with -9 the one that charges order 3: the other takes it over. SIGTERM or Ctrl-C drains.
#![allow(clippy::print_stdout, reason = "an example")]
use std::time::Duration;

use idempotent::mq::{Consumer, Message, Messages};
use idempotent::redis_streams::{StartPosition, StreamsSource};
use idempotent::{Executor, connect, idempotent};
use tokio::signal::unix::{SignalKind, signal};

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
    /// The response time of the bank.
    #[serde(default)]
    takes_ms: u64,
}

#[idempotent(scene = mq, scope = "charge", key = message.body.number)]
async fn charge(message: Message<Order>) -> anyhow::Result<()> {
    let Order { number, cents, takes_ms } = message.body;
    anyhow::ensure!(cents > 0, "nothing to charge");
    println!("order {number}: asking the bank");
    tokio::time::sleep(Duration::from_millis(takes_ms)).await;
    println!("order {number}: charged {cents} cents");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let source = StreamsSource::builder(&url, "orders", "billing")
        .declare(StartPosition::Beginning)
        .min_idle(Duration::from_secs(10))
        .connect()
        .await?;
    // Keys on the same server, so that all that read the group share them.
    let executor = Executor::new(connect(&url).await?);
    let consumer = Consumer::builder(source, "billing", &executor).build(Messages::json().annotated(charge))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {} _ = tokio::signal::ctrl_c() => {} }
        println!("stopping: running handlers may end");
    };
    let counts = consumer.run(stop).await?;
    println!(
        "{} acknowledged, {} retried, {} dead-lettered in orders:dead, {} given back",
        counts.acked, counts.retried, counts.dead_lettered, counts.given_back
    );
    Ok(())
}
