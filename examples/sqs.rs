//! Consumes a queue of Amazon SQS: each order is charged once, however often it is sent or delivered.
//!
//! ```text
//! export AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=…
//! cargo run -p idempotent-examples --features sqs --example sqs -- eu-west-1
//! URL=$(aws sqs get-queue-url --queue-name orders --output text)
//! aws sqs send-message --queue-url $URL --message-body '{"number": 1, "cents": 500}'    # charged
//! aws sqs send-message --queue-url $URL --message-body '{"number": 1, "cents": 500}'    # sent twice: deleted, not charged
//! aws sqs send-message --queue-url $URL --message-body '{"number": 2, "cents": 0}'      # fails, and is retried
//! aws sqs send-message --queue-url $URL --message-body 'what?'                          # dead-lettered at once
//! aws sqs receive-message --queue-url $URL-dead --message-attribute-names All
//! ```
//!
//! The keys are in the file `sqs.db`, or in the one that a second argument names, so several processes on one machine share them. A third
//! argument is the endpoint of an emulator, such as `http://127.0.0.1:5000` of `moto_server`.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use anyhow::Context;
use idempotent::mq::{Consumer, KeyFrom, Message, Messages};
use idempotent::sqs::SqsSource;
use idempotent::sqs::aws_sdk_sqs::Client;
use idempotent::sqs::aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use idempotent::{Executor, SqliteStore};
use tokio::signal::unix::{SignalKind, signal};

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

async fn charge(message: Message<Order>) -> Result<(), &'static str> {
    let Order { number, cents } = message.body;
    if cents == 0 {
        return Err("nothing to charge");
    }
    println!("order {number}: charged {cents} cents");
    Ok(())
}

/// Creates a client with the credentials of the environment. A program with the crate `aws-config` also finds those of profiles and
/// roles: `Client::new(&aws_config::load_from_env().await)`.
fn client(region: String, endpoint: Option<String>) -> anyhow::Result<Client> {
    let variable = |name| match std::env::var(name) {
        // An emulator accepts any credentials.
        Err(_) if endpoint.is_some() => Ok("test".to_owned()),
        value => value.context(name),
    };
    let (key, secret) = (variable("AWS_ACCESS_KEY_ID")?, variable("AWS_SECRET_ACCESS_KEY")?);
    let credentials = Credentials::new(key, secret, std::env::var("AWS_SESSION_TOKEN").ok(), None, "environment");
    let mut config = Config::builder().behavior_version(BehaviorVersion::latest()).region(Region::new(region));
    config.set_endpoint_url(endpoint);
    Ok(Client::from_conf(config.credentials_provider(credentials).build()))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let region = arguments.next().unwrap_or_else(|| "eu-west-1".to_owned());
    let keys = arguments.next().unwrap_or_else(|| "sqs.db".to_owned());
    let client = client(region, arguments.next())?;
    let source = SqsSource::builder(client, "orders").declare().connect().await?;
    let executor = Executor::new(SqliteStore::open(keys).await?);
    let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
    let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {} _ = tokio::signal::ctrl_c() => {} }
    };
    let counts = consumer.run(stop).await?;
    println!("{} acknowledged, {} retried, {} dead-lettered", counts.acked, counts.retried, counts.dead_lettered);
    Ok(())
}
