//! The relay and the worker: each order is shipped once.
use std::sync::Arc;
use std::time::Duration;

use idempotent::metrics::{MetricsCollector, MetricsObserver};
use idempotent::mq::{Consumer, Message, Messages, Schedule};
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
use idempotent::{Executor, Outbox, Rejection, Relay, Tracing, connect, idempotent};
use sqlx::{Postgres, Transaction};

use crate::api::Order;
use crate::arguments::{RelayArguments, WorkArguments};
use crate::database;
use crate::health::{self, Stop};

/// The queue of the orders to ship. Its dead letters are in `orders.dead`.
pub(crate) const QUEUE: &str = "orders";

#[derive(Debug, thiserror::Error)]
enum ShippingError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Ships an order. The record of the key and the shipment are one transaction: a crash or an error leaves both or neither.
///
/// The key is claimed by a lease, so the runs are counted, and an order that never succeeds becomes a dead letter.
#[idempotent(scene = mq, scope = "ship", key = order.number, transaction = leased(tx))]
async fn ship(order: &Order, tx: &mut Transaction<'_, Postgres>) -> Result<(), ShippingError> {
    Ok(database::ship(tx, &order.number).await?)
}

/// Ships orders until the stop signal. Running handlers may complete within the grace period.
pub(crate) async fn work(arguments: WorkArguments) -> anyhow::Result<()> {
    let metrics = health::record_metrics()?;
    let stop = Stop::listen()?;
    let observer = MetricsObserver::new().store("records");
    let store = connect(arguments.database.url()?).await?;
    let executor = Executor::builder(store).observer((Tracing, observer.clone())).build()?;
    let source = declared(&arguments.broker.url()?).await?;
    let handler = Messages::json().annotated(|message: Message<Order>| async move { ship(&message.body).await });
    let consumer = Consumer::builder(source, QUEUE, &executor)
        .observer(observer)
        .schedule(Schedule::exponential(Duration::from_secs(1), Duration::from_secs(60)))
        .grace(arguments.grace)
        .build(handler)?;
    let collector = MetricsCollector::new().executor("ship", &executor).consumer(QUEUE, consumer.counters());
    health::start(arguments.listen, health::routes(stop.clone(), metrics), collector).await?;
    consumer.run(stop.requested()).await?;
    let drained = executor.drain(arguments.drain).await;
    tracing::info!(finished = drained.finished, abandoned = drained.abandoned, "stopped");
    Ok(())
}

/// Sends the messages of the outbox until the stop signal. The running rounds complete within the lease.
pub(crate) async fn relay(arguments: RelayArguments) -> anyhow::Result<()> {
    let metrics = health::record_metrics()?;
    let stop = Stop::listen()?;
    let outbox = Outbox::open(database::connect(&arguments.database.url()?).await?).await?;
    let url = arguments.broker.url()?;
    // A message for a missing queue is refused.
    declared(&url).await?;
    // Shorter than two thirds of the lease: the relay itself retries while the broker is down.
    let publisher =
        RabbitPublisher::builder(&url).give_up_after(Duration::from_secs(5).min(arguments.lease / 2)).build()?;
    let relay = Relay::new(&outbox, Arc::new(publisher)).lease(arguments.lease);
    let collector = MetricsCollector::new().relay("orders", relay.counters()).outbox("orders", &outbox);
    health::start(arguments.listen, health::routes(stop.clone(), metrics), collector).await?;
    relay.run(stop.requested()).await;
    Ok(())
}

/// Returns the source of the queue, which exists then.
async fn declared(url: &str) -> anyhow::Result<RabbitSource> {
    let source = RabbitSource::builder(url, Queue::quorum(QUEUE)).build()?;
    source.declare().await?;
    Ok(source)
}
