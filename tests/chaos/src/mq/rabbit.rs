//! RabbitMQ.
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use idempotent::Timestamp;
use idempotent::mq::{Delivery, OutboundMessage, PublishErrorKind, Received, Retry, Settlement, Source};
use idempotent::rabbitmq::{Queue, RabbitProperties, RabbitPublisher, RabbitSource};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RabbitServer;
use lapin::options::BasicGetOptions;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};

pub(crate) use super::broker::QUEUE;
use super::broker::{Broker, Letter};
use super::copy::Copy;
use crate::server::{self, Server};

pub(super) struct Rabbit {
    // Dropped in this order.
    publisher: RabbitPublisher,
    proxy: Proxy,
    server: RabbitServer,
}

const MARK: &str = "x-idempotent-";
const MEDIA_TYPE: &str = "application/json";
/// The headers that the broker adds to messages that the harness has read.
const COUNTS: [&str; 2] = ["x-acquired-count", "x-delivery-count"];
/// The delays of retries in ms: those of the schedule, of a key in flight, and of a store outage.
const DELAYS_MS: [u64; 7] = [100, 200, 500, 1_000, 2_000, 3_000, 5_000];
/// The time for a response.
const SOON: Duration = Duration::from_secs(2);

/// Returns a quorum queue. A classic queue may lose messages that wait for a retry when its node is lost.
/// `delayed` lets the broker delay a key in flight, without a copy.
fn queue(delayed: bool) -> Queue {
    let queue = Queue::quorum(QUEUE);
    if delayed { queue.delayed_retry(Duration::from_millis(100), Duration::from_secs(5)) } else { queue }
}

pub(crate) fn source(url: &str, delayed: bool) -> anyhow::Result<RabbitSource> {
    Ok(RabbitSource::builder(url, queue(delayed)).build()?)
}

/// A dead letter as it must not be.
pub(super) async fn bury_bare(url: &str, delivery: &Delivery) -> anyhow::Result<()> {
    let id = delivery.id.clone().unwrap_or_default();
    let letter = OutboundMessage::new(format!("{QUEUE}.dead"), id, delivery.body.clone());
    RabbitPublisher::builder(url).build()?.publish(&letter).await?;
    Ok(())
}

impl Rabbit {
    pub(super) async fn start(delayed: bool) -> anyhow::Result<Self> {
        let (server, proxy) = server::start(RabbitServer::start).await?;
        let url = url(&proxy);
        declare(&url, delayed).await.context("RabbitMQ does not get ready")?;
        let publisher = RabbitPublisher::builder(&url).confirm_within(SOON).give_up_after(SOON * 2).build()?;
        Ok(Self { publisher, proxy, server })
    }
}

/// All queues that a run may need. A quorum queue that is declared a moment before its only node is killed does not come
/// back, with all that was confirmed in it: that is the broker's own affair, and not what is put to the test.
pub(crate) async fn declare(url: &str, delayed: bool) -> anyhow::Result<()> {
    let mut source = source(url, delayed)?;
    source.declare().await?;
    let (publisher, settler) = (RabbitPublisher::builder(url).build()?, source.settler());
    for _ in DELAYS_MS {
        publisher.publish(&OutboundMessage::with_random_id(QUEUE, "")?).await?;
    }
    let mut delays = DELAYS_MS.into_iter();
    // Each once to be put off, and once more when it is back.
    let mut left = DELAYS_MS.len() * 2;
    while left > 0 {
        let Received::Deliveries(deliveries) = source.receive(left).await? else { bail!("the channel is gone") };
        for (delivery, tag) in deliveries {
            left = left.saturating_sub(1);
            let put_off = delays.next().map(|ms| Retry::after(Duration::from_millis(ms), Timestamp(0)));
            let settlement = put_off.map_or(Settlement::Ack, Settlement::Retry);
            settler.settle(&delivery, &tag, &settlement).await?;
        }
    }
    source.close().await;
    Ok(())
}

/// Returns the number of unsettled messages in each queue, without empty queues and dead letters. Blocks.
pub(crate) fn left(server: &RabbitServer) -> Vec<(String, u64)> {
    let messages = server.queues("/", "messages").into_iter();
    messages.filter(|(name, messages)| *messages > 0 && !name.ends_with(".dead")).collect()
}

fn url(proxy: &Proxy) -> String {
    format!("amqp://guest:guest@{}/%2f", proxy.address())
}

#[async_trait]
impl Broker for Rabbit {
    fn url(&self) -> String {
        url(&self.proxy)
    }

    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool> {
        let outgoing = OutboundMessage::new(QUEUE, &copy.id, copy.body.clone())
            .business_key(&copy.id)
            .header("copy", copy.name.as_str());
        let mut properties = RabbitProperties::default().content_type(MEDIA_TYPE).header("trace", copy.trace.clone());
        if copy.forged {
            properties =
                properties.header(format!("{MARK}attempt"), 1_000_000).header(format!("{MARK}queue"), "elsewhere");
        }
        match self.publisher.publish_with(&outgoing, &properties).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == PublishErrorKind::Refused => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    fn letter(&self, copy: &Copy) -> Letter {
        let mut headers = FieldTable::default();
        headers.insert("copy".into(), AMQPValue::LongString(copy.name.as_str().into()));
        headers.insert("trace".into(), AMQPValue::ByteArray(copy.trace.as_slice().into()));
        let properties = BasicProperties::default()
            .with_message_id(copy.id.as_str().into())
            .with_headers(headers)
            .with_content_type(MEDIA_TYPE.into())
            .with_correlation_id(copy.id.as_str().into())
            .with_delivery_mode(2);
        letter(&copy.body, properties)
    }

    fn left(&self) -> anyhow::Result<Vec<(String, u64)>> {
        Ok(left(&self.server))
    }

    async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let connection = Connection::connect(&self.server.url(), ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let mut letters = Vec::new();
        let name = format!("{QUEUE}.dead");
        while let Some(found) = channel.basic_get(name.as_str().into(), BasicGetOptions { no_ack: true }).await? {
            let found = found.delivery;
            letters.push(letter(&found.data, found.properties));
        }
        Ok(letters)
    }

    fn place(&self) -> (&dyn Server, &Proxy) {
        (&self.server, &self.proxy)
    }
}

fn letter(body: &[u8], properties: BasicProperties) -> Letter {
    let mut headers = properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
    headers.retain(|name, _| !name.as_str().starts_with(MARK) && !COUNTS.contains(&name.as_str()));
    let copy = match headers.get("copy") {
        Some(AMQPValue::LongString(name)) => Some(name.to_string()),
        _ => None,
    };
    let rest = properties.with_headers(headers.into());
    Letter { copy, content: format!("{} {rest:?}", body.escape_ascii()) }
}
