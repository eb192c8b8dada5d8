//! Consumes a queue of RabbitMQ by a loop over lapin: the attribute deduplicates, and the loop settles by [`Disposition`].
//!
//! ```text
//! rabbitmqadmin declare queue name=orders
//! rabbitmqadmin declare queue name=orders.dead
//! rabbitmqctl set_policy orders '^orders$' '{"dead-letter-exchange": "", "dead-letter-routing-key": "orders.dead"}'
//! cargo run -p idempotent-examples --features rabbitmq --example loop_lapin -- amqp://guest:guest@127.0.0.1/%2f
//! ```
//!
//! The keys are in the file `orders.db`, or in the one that a second argument names. Dead letters are where `idempotent dead list`
//! looks for them. The guide on own loops says what the consumer of this project adds.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its progress")]
use std::time::Duration;

use futures_util::stream::once;
use futures_util::{StreamExt, TryFutureExt, TryStreamExt};
use idempotent::{Disposition, Executor, SqliteStore, idempotent};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use tokio::signal::unix::{SignalKind, signal};

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

async fn handle(delivery: Delivery, executor: &Executor) -> anyhow::Result<()> {
    let disposition = match serde_json::from_slice(&delivery.data) {
        Ok(order) => {
            let charged = charge(order).inspect_err(|error| eprintln!("{error:#}"));
            executor.scope(Disposition::of(charged)).await.1
        }
        Err(error) => Disposition::DeadLetter { reason: error.to_string().into() },
    };
    match disposition {
        Disposition::Ack => delivery.ack(BasicAckOptions::default()).await?,
        // The policy of the queue moves it to the dead letters.
        Disposition::DeadLetter { .. } => delivery.reject(BasicRejectOptions { requeue: false }).await?,
        retry => {
            // RabbitMQ would deliver it again at once. A shutdown waits for this, too.
            if let Disposition::Retry { after } = retry {
                tokio::time::sleep(after.min(Duration::from_secs(20))).await;
            }
            delivery.nack(BasicNackOptions { requeue: true, ..Default::default() }).await?
        }
    };
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "amqp://guest:guest@127.0.0.1/%2f".to_owned());
    let executor = Executor::new(SqliteStore::open(arguments.next().unwrap_or_else(|| "orders.db".to_owned())).await?);
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(16, BasicQosOptions::default()).await?;
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let deliveries = channel.basic_consume("orders".into(), "".into(), options, arguments).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Takes no more deliveries after SIGTERM, and finishes those that run.
    let cancelled = once(async { Err(anyhow::anyhow!("RabbitMQ has cancelled the subscription")) });
    let deliveries = deliveries.map_err(anyhow::Error::from).chain(cancelled).take_until(Box::pin(terminate.recv()));
    deliveries.try_for_each_concurrent(16, |delivery| handle(delivery, &executor)).await?;
    Ok(connection.close(200, "stopped".into()).await?)
}
