//! The broker that relays send to and consumers receive from.
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::delay_queue::{DelayDeadLetters, DelayProducer, DelayQueue, DelayQueueBuilder};
use idempotent::mq::{DeadLetters, Publish};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{RabbitServer, RedisServer};
use tokio::time::sleep;

use super::rabbit;
use crate::delivery::phases::unsettled;
use crate::server::Server;

/// The kind of the broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum OutboxBroker {
    /// The delay queue, on Redis.
    Delay,
    /// A quorum queue of RabbitMQ.
    Rabbitmq,
}

impl OutboxBroker {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Delay, Self::Rabbitmq];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Rabbitmq => "rabbitmq",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|broker| broker.name() == name)
    }

    /// Returns the kind of a URL for processes.
    pub(super) fn of(url: &str) -> Self {
        if url.starts_with("amqp") { Self::Rabbitmq } else { Self::Delay }
    }

    /// Returns the destination that relays use.
    pub(super) fn topic(self) -> &'static str {
        match self {
            Self::Delay => TOPIC,
            Self::Rabbitmq => rabbit::TOPIC,
        }
    }
}

/// The topic of the delay queue.
const TOPIC: &str = "orders";
const VISIBILITY: Duration = Duration::from_millis(1_500);
const SLOTS: u16 = 2;
/// Far above what the handlers' policy allows, which is to be what counts.
const RETRIES: u32 = 1_000;

/// The broker of the harness.
pub(super) enum Broker {
    Delay(DelayQueue),
    Rabbitmq(Arc<RabbitServer>),
}

/// One that runs.
pub(super) struct Started {
    pub(super) broker: Broker,
    /// The URL through the proxy.
    pub(super) by_proxy: String,
    pub(super) server: (Arc<dyn Server>, Proxy),
}

impl Broker {
    /// Starts the broker and declares its queues.
    pub(super) async fn start(kind: OutboxBroker) -> anyhow::Result<Started> {
        match kind {
            OutboxBroker::Delay => {
                let server = tokio::task::spawn_blocking(|| RedisServer::builder().aof().start());
                let server = server.await.context("Redis does not start")?;
                let proxy = Proxy::start(&server.address()).await;
                let broker = Self::Delay(builder(&server.url()).connect().await?);
                Ok(Started { broker, by_proxy: proxy.url(), server: (Arc::new(server), proxy) })
            }
            OutboxBroker::Rabbitmq => {
                let server = tokio::task::spawn_blocking(RabbitServer::start).await;
                let server = Arc::new(server.context("RabbitMQ does not start")?);
                let proxy = Proxy::start(&server.address()).await;
                rabbit::declare(&server).await.context("RabbitMQ does not get ready")?;
                let by_proxy = server.url().replace(&server.address(), &proxy.address());
                Ok(Started { broker: Self::Rabbitmq(server.clone()), by_proxy, server: (server, proxy) })
            }
        }
    }

    /// Returns the number of messages that are not settled, dead letters left out.
    pub(super) async fn unsettled(&self) -> Option<u64> {
        match self {
            Self::Delay(queue) => unsettled(queue).await,
            Self::Rabbitmq(server) => rabbit::unsettled(server).await,
        }
    }

    /// The ids of all dead letters.
    pub(super) async fn letters(&self) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Delay(queue) => {
                let (mut letters, mut all) = (DelayDeadLetters::new(queue), Vec::new());
                while let Some((delivery, _)) = letters.next().await? {
                    all.push(delivery.id.context("a dead letter without an id")?);
                }
                Ok(all)
            }
            Self::Rabbitmq(server) => rabbit::letters(server).await,
        }
    }

    /// The ids of all that was accepted, in that order. The delay queue keeps none: the members that messages are there have
    /// numbers which rise, and each delivery says its own.
    pub(super) async fn tape(&self) -> anyhow::Result<Option<Vec<String>>> {
        match self {
            Self::Delay(_) => Ok(None),
            Self::Rabbitmq(server) => rabbit::tape(server).await.map(Some),
        }
    }
}

/// Returns a publisher to the broker of this URL.
pub(super) async fn publisher(url: &str) -> anyhow::Result<Arc<dyn Publish>> {
    Ok(match OutboxBroker::of(url) {
        OutboxBroker::Delay => Arc::new(DelayProducer::new(&queue(url).await)),
        OutboxBroker::Rabbitmq => Arc::new(rabbit::publisher(url)?),
    })
}

/// The same for everybody.
fn builder(url: &str) -> DelayQueueBuilder {
    DelayQueue::builder(url, TOPIC).slots(SLOTS).visibility(VISIBILITY).max_retries(RETRIES)
}

/// Once it can be reached.
pub(super) async fn queue(url: &str) -> DelayQueue {
    loop {
        match builder(url).connect().await {
            Ok(queue) => return queue,
            Err(error) => eprintln!("no queue: {error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}
