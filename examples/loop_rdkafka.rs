//! Consumes a topic of Kafka by a loop over rdkafka: the attribute deduplicates, and the loop settles by [`Disposition`].
//!
//! ```text
//! kafka-topics --bootstrap-server 127.0.0.1:9092 --create --topic orders
//! kafka-topics --bootstrap-server 127.0.0.1:9092 --create --topic orders-dead
//! cargo run -p idempotent-examples --features kafka --example loop_rdkafka -- 127.0.0.1:9092
//! ```
//!
//! The keys are in the file `orders.db`, or in the one that a second argument names. Dead letters are where `idempotent dead list`
//! looks for them. The guide on own loops says what the consumer of this project adds.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its progress")]
use std::time::Duration;

use futures_util::TryFutureExt;
use idempotent::{Disposition, Executor, SqliteStore, idempotent};
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message, Offset};
use tokio::signal::unix::{SignalKind, signal};

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

#[idempotent(scene = mq, scope = "charge", key = order.number)]
async fn charge(order: Order) -> anyhow::Result<()> {
    anyhow::ensure!(order.cents > 0, "nothing to charge");
    println!("order {}: charged {} cents", order.number, order.cents);
    Ok(())
}

/// Returns `None` if the offset may be committed, or else the delay of a retry.
async fn handle(
    message: &BorrowedMessage<'_>,
    executor: &Executor,
    dead: &FutureProducer,
) -> anyhow::Result<Option<Duration>> {
    let payload = message.payload().unwrap_or_default();
    let disposition = match serde_json::from_slice(payload) {
        Ok(order) => {
            let charged = charge(order).inspect_err(|error| eprintln!("{error:#}"));
            executor.scope(Disposition::of(charged)).await.1
        }
        Err(error) => Disposition::DeadLetter { reason: error.to_string().into() },
    };
    match disposition {
        Disposition::Ack => Ok(None),
        Disposition::DeadLetter { .. } => {
            let letter = FutureRecord::to("orders-dead").payload(payload).key(message.key().unwrap_or_default());
            dead.send(letter, TIMEOUT).await.map_err(|(error, _)| error)?;
            Ok(None)
        }
        Disposition::Retry { after } => Ok(Some(after)),
        _ => Ok(Some(Duration::ZERO)),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let servers = arguments.next().unwrap_or_else(|| "127.0.0.1:9092".to_owned());
    let executor = Executor::new(SqliteStore::open(arguments.next().unwrap_or_else(|| "orders.db".to_owned())).await?);
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", "billing").set("auto.offset.reset", "earliest");
    let consumer: StreamConsumer = config.clone().set("enable.auto.commit", "false").create()?;
    let dead: FutureProducer = config.create()?;
    consumer.subscribe(&["orders"])?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let message = tokio::select! {
            message = consumer.recv() => message?,
            _ = terminate.recv() => return Ok(()),
        };
        let Some(after) = handle(&message, &executor, &dead).await? else {
            consumer.commit_message(&message, CommitMode::Sync)?;
            continue;
        };
        // Kafka does not deliver a single message again: the loop goes back to it, and later messages wait.
        consumer.seek(message.topic(), message.partition(), Offset::Offset(message.offset()), TIMEOUT)?;
        tokio::select! {
            // Less than `max.poll.interval.ms`, 5 min: a consumer that does not poll loses its partitions.
            () = tokio::time::sleep(after.min(Duration::from_secs(60))) => {}
            _ = terminate.recv() => return Ok(()),
        }
    }
}
