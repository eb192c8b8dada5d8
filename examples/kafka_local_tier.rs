//! Consumes a topic of Kafka with a local tier: a file of this process answers duplicates, and a shared store decides.
//!
//! ```text
//! cargo run -p idempotent-examples --features kafka --example kafka_local_tier -- billing-0 kafka://127.0.0.1:9092
//! cargo run -p idempotent-examples --features kafka --example kafka_local_tier -- billing-1 kafka://127.0.0.1:9092
//! kafka-console-producer --bootstrap-server 127.0.0.1:9092 --topic orders --property parse.key=true --property key.separator=:
//! o-1:500    # one of the processes charges the order
//! o-1:500    # the same process receives the duplicate, and its file answers
//! ```
//!
//! Stop the process that has charged the order, and send the order again. The other process takes over the partition after the
//! session timeout. Its file does not know the order, so it asks the shared store, and the order is not charged again. Each process
//! prints at its end how many claims its file has answered.
//!
//! The shared store is the file `shared.db`, which the processes of one machine can share. A third argument names another one.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::time::Duration;

use anyhow::Context;
use idempotent::kafka::KafkaSource;
use idempotent::mq::{Consumer, KeyFrom, Message, Messages};
use idempotent::store::SqliteTier;
use idempotent::{Executor, TieredStore, connect};

/// The time for which a file answers without the shared store. A key that an operator forgets is answered for as long.
const MAX_AGE: Duration = Duration::from_secs(6 * 3600);
/// A member that returns within this time gets its partitions back, and its file still knows their keys.
const SESSION: Duration = Duration::from_secs(30);

async fn charge(message: Message<()>) -> Result<(), &'static str> {
    let cents = String::from_utf8_lossy(&message.delivery.body);
    let order = message.delivery.business_key.as_deref().unwrap_or_default();
    println!("order {order}: charged {cents} cents");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let member = arguments.next().context("name this process, such as `billing-0`")?;
    let url = arguments.next().unwrap_or_else(|| "kafka://127.0.0.1:9092".to_owned());
    let shared = arguments.next().unwrap_or_else(|| "sqlite:shared.db".to_owned());

    let shared = connect(&shared).create(true).await?;
    let local = SqliteTier::open(format!("{member}.db")).await?;
    let store = TieredStore::builder(shared, local).max_age(MAX_AGE).build();
    let executor = Executor::new(store.clone());

    let source = KafkaSource::builder(url, "orders", "billing").declare(6).member(member).session_timeout(SESSION);
    // The record key is the key of the order, so all copies of an order are in one partition.
    let handling = Messages::raw().keyed(KeyFrom::business_key()).run(charge);
    let consumer = Consumer::builder(source.connect().await?, "billing", &executor).build(handling)?;
    consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?;

    let counts = store.counts();
    println!("the file answered {} claims, the shared store {}", counts.hits, counts.misses);
    Ok(())
}
