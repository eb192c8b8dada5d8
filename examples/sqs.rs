//! Consumes a queue of Amazon SQS: each order is charged once, however often it is sent or delivered.
//!
//! ```text
//! eval "$(aws configure export-credentials --format env)"
//! cargo run -p idempotent-examples --features sqs --example sqs -- sqs://eu-west-1
//! URL=$(aws sqs get-queue-url --queue-name orders --output text)
//! aws sqs send-message --queue-url $URL --message-body '{"number": 1, "cents": 500}'    # charged
//! aws sqs send-message --queue-url $URL --message-body '{"number": 1, "cents": 500}'    # sent twice: deleted, not charged
//! aws sqs send-message --queue-url $URL --message-body '{"number": 2, "cents": 0}'      # fails, and is retried
//! aws sqs send-message --queue-url $URL --message-body 'what?'                          # dead-lettered at once
//! aws sqs receive-message --queue-url $URL-dead --message-attribute-names All
//! ```
//!
//! The keys are in the file `sqs.db`, or in the one that a second argument names, so several processes on one machine share them. For
//! an emulator such as `moto_server`, the URL is `sqs://eu-west-1?endpoint=http://127.0.0.1:5000`.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use idempotent::mq::{Consumer, Message, Messages};
use idempotent::sqs::{SqsSource, client};
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
    let url = arguments.next().unwrap_or_else(|| "sqs://eu-west-1".to_owned());
    let keys = arguments.next().unwrap_or_else(|| "sqs.db".to_owned());
    // A service uses the crate `aws-config`: `Client::new(&aws_config::load_from_env().await)`.
    let source = SqsSource::builder(client(&url)?, "orders").declare().connect().await?;
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
