//! Consumes payment callbacks from RabbitMQ or RocketMQ, with one effect for each order.
//!
//! ```text
//! cargo run -p idempotent-examples --features rabbitmq --example orders -- --broker rabbitmq --url amqp://guest:guest@localhost/%2f
//! cargo run -p idempotent-examples --features rocketmq --example orders -- --broker rocketmq --url rocketmq://localhost
//! ```
//!
//! The program first sends callbacks: two for each order, one of them for an order that does not exist yet, and one that is
//! malformed. Then it consumes until SIGTERM or Ctrl-C, and finishes running handlers. `--store redis://HOST` stores the keys
//! in Redis: run the program again, and no order is paid a second time.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use idempotent::mq::{Consumer, Message, Messages, OutboundMessage, Schedule, Source};
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
#[cfg(feature = "rocketmq")]
use idempotent::rocketmq::{RocketPublisher, RocketSource};
use idempotent::{Executor, Rejection, connect, idempotent};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Parser)]
#[command(about = "Consumes payment callbacks, with one effect for each order")]
struct Args {
    #[arg(long)]
    broker: Broker,
    /// URL of RabbitMQ, or of the name servers of RocketMQ
    #[arg(long)]
    url: String,
    /// URL of the store for the keys
    #[arg(long, default_value = "memory:")]
    store: String,
    /// Queue of RabbitMQ, or topic of RocketMQ
    #[arg(long, default_value = "pay_results")]
    queue: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Broker {
    Rabbitmq,
    /// Needs the feature `rocketmq`
    Rocketmq,
}

#[derive(Clone, Debug, serde::Deserialize)]
struct PayResult {
    order: String,
    cents: u64,
}

/// A stand-in for a database: the orders that a handler has looked up.
type Orders = Arc<Mutex<HashSet<String>>>;

#[derive(Debug, thiserror::Error)]
enum HandlerError {
    #[error("the order does not exist yet")]
    UnknownOrder,
    #[error(transparent)]
    Rejected(#[from] Rejection),
}

/// Marks an order as paid. The record is retained for two hours, so that later callbacks do not run this handler.
#[idempotent(scene = mq, prefix = "shop", scope = "pay_result", key = (&paid.order, paid.cents), retain = "2h")]
async fn pay_result(paid: &PayResult, orders: &Orders) -> Result<(), HandlerError> {
    let is_first = orders.lock().unwrap_or_else(PoisonError::into_inner).insert(paid.order.clone());
    if paid.order == "early" && is_first {
        println!("{}: does not exist yet, retry", paid.order);
        return Err(HandlerError::UnknownOrder);
    }
    println!("{}: paid {} cents", paid.order, paid.cents);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.broker {
        Broker::Rabbitmq => {
            let source = RabbitSource::builder(&args.url, Queue::classic(&args.queue)).build()?;
            source.declare().await?;
            send_to_rabbitmq(&args).await?;
            consume(source, &args).await
        }
        #[cfg(feature = "rocketmq")]
        Broker::Rocketmq => {
            // The consumer group has the name of the topic. Only messages with the tag `paid` are delivered.
            let source = RocketSource::builder(&*args.url, &args.queue, &args.queue).tags("paid").build()?;
            source.declare(4).await?;
            send_to_rocketmq(&args).await?;
            consume(source, &args).await
        }
        #[cfg(not(feature = "rocketmq"))]
        Broker::Rocketmq => anyhow::bail!("--broker rocketmq: not in this build; add `--features rocketmq`"),
    }
}

/// Consumes until a signal arrives. A failed handler is retried after a second, then after longer and longer delays.
async fn consume(source: impl Source, args: &Args) -> anyhow::Result<()> {
    let executor = Executor::new(connect(&args.store).await?);
    let orders = Orders::default();
    let handler = Messages::json().annotated(move |message: Message<PayResult>| {
        let orders = orders.clone();
        async move { pay_result(&message.body, &orders).await }
    });
    let consumer = Consumer::builder(source, args.queue.clone(), &executor)
        .schedule(Schedule::exponential(Duration::from_secs(1), Duration::from_secs(60)))
        .grace(Duration::from_secs(5))
        .build(handler)?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        println!("stopping: running handlers may finish");
    };
    let counts = consumer.run(stop).await?;
    println!(
        "{} acknowledged, {} retried, {} dead-lettered, {} given back",
        counts.acked, counts.retried, counts.dead_lettered, counts.given_back
    );
    Ok(())
}

/// Returns the callbacks of the payment service, which sends each at least once: id, order and body.
fn callbacks() -> impl Iterator<Item = (String, &'static str, String)> {
    let twice = ["order-1", "order-2", "early"].into_iter().flat_map(|order| [(order, 1), (order, 2)]);
    let valid =
        twice.map(|(order, call)| (format!("{order}/{call}"), order, format!(r#"{{"order":"{order}","cents":500}}"#)));
    valid.chain([("malformed".to_owned(), "none", "paid, thanks".to_owned())])
}

async fn send_to_rabbitmq(args: &Args) -> anyhow::Result<()> {
    let publisher = RabbitPublisher::builder(&args.url).build()?;
    for (id, _, body) in callbacks() {
        publisher.publish(&OutboundMessage::new(&args.queue, id, body)).await?;
    }
    Ok(())
}

#[cfg(feature = "rocketmq")]
async fn send_to_rocketmq(args: &Args) -> anyhow::Result<()> {
    let publisher = RocketPublisher::builder(&*args.url).build()?;
    for (id, order, body) in callbacks() {
        let topic = format!("{}:paid", args.queue);
        publisher.publish(&OutboundMessage::new(topic, id, body).business_key(order)).await?;
    }
    Ok(())
}
