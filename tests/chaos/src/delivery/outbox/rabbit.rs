//! RabbitMQ. The relays publish to an exchange with two queues: the queue of the consumers, and the *tape*, which is
//! read only at the end. The tape contains all accepted messages in order. A message is sent after its predecessor in
//! the aggregate is confirmed, and the broker confirms when both queues have the message. The first copy of a message
//! on the tape is therefore after that of its predecessor. Retries do not use the exchange.
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::mq::OutboundMessage;
use idempotent::rabbitmq::{RabbitPublisher, RabbitSource};
use idempotent_harness::servers::RabbitServer;
use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use crate::mq::rabbit::{self, QUEUE};

/// An exchange, and a key that says nothing to it.
pub(super) const TOPIC: &str = "written/order";
const EXCHANGE: &str = "written";
const TAPE: &str = "tape";
/// Longer than a busy machine takes for a confirm, and together within two thirds of a relay's lease.
const CONFIRM: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(4);

pub(super) fn publisher(url: &str) -> anyhow::Result<RabbitPublisher> {
    Ok(RabbitPublisher::builder(url).confirm_within(CONFIRM).give_up_after(GIVE_UP).build()?)
}

pub(super) fn source(url: &str) -> anyhow::Result<RabbitSource> {
    rabbit::source(url, false)
}

/// All that a run needs, on the broker's disk.
pub(super) async fn declare(server: &Arc<RabbitServer>) -> anyhow::Result<()> {
    let url = server.url();
    rabbit::declare(&url, false).await?;
    let (_connection, channel) = open(&url).await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(TAPE.into(), durable, quorum).await?;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(EXCHANGE.into(), ExchangeKind::Fanout, durable, FieldTable::default()).await?;
    for queue in [QUEUE, TAPE] {
        let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
        channel.queue_bind(queue.into(), EXCHANGE.into(), "".into(), options, arguments).await?;
    }
    // A confirmed and consumed message shows that the queue is ready.
    RabbitPublisher::builder(&url).build()?.publish(&OutboundMessage::with_random_id(TAPE, "")?).await?;
    take(&channel, TAPE).await?;
    let server = server.clone();
    Ok(tokio::task::spawn_blocking(move || server.sync()).await?)
}

/// Returns the number of messages in all queues but the tape and that of the dead letters.
pub(super) async fn unsettled(server: &Arc<RabbitServer>) -> Option<u64> {
    let server = server.clone();
    let left = tokio::task::spawn_blocking(move || rabbit::left(&server)).await.ok()?;
    Some(left.iter().filter(|(queue, _)| queue != TAPE).map(|(_, messages)| messages).sum())
}

pub(super) async fn letters(server: &RabbitServer) -> anyhow::Result<Vec<String>> {
    let (_connection, channel) = open(&server.url()).await?;
    take(&channel, &format!("{QUEUE}.dead")).await
}

pub(super) async fn tape(server: &RabbitServer) -> anyhow::Result<Vec<String>> {
    let (_connection, channel) = open(&server.url()).await?;
    take(&channel, TAPE).await
}

async fn open(url: &str) -> anyhow::Result<(Connection, Channel)> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

/// Removes all messages of a queue, and returns their ids.
async fn take(channel: &Channel, queue: &str) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    while let Some(found) = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await? {
        let id = found.delivery.properties.message_id().as_ref().map(ToString::to_string);
        ids.push(id.with_context(|| format!("a message without an id lies in {queue}"))?);
    }
    Ok(ids)
}
