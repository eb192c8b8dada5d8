//! The broker that relays send to and consumers receive from.
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idempotent::delay_queue::{DelayDeadLetters, DelayProducer, DelayQueue, DelayQueueBuilder};
use idempotent::mq::{DeadLetters, Publish, StoredLetter};
#[cfg(feature = "rocketmq")]
use idempotent::mq::{Delivery, Position};
use idempotent::redis_streams::StreamsPublisher;
use idempotent_harness::proxy::Proxy;
#[cfg(feature = "rocketmq")]
use idempotent_harness::servers::RocketServer;
use idempotent_harness::servers::{RabbitServer, RedisServer};

use super::rabbit;
use super::remaining::Accepted;
use crate::deadline::connected;
use crate::delivery::phases::unsettled;
#[cfg(feature = "rocketmq")]
use crate::mq::rocket;
use crate::mq::{QUEUE, streams};
use crate::named::named;
use crate::server::{self, Server};

named! {
    /// The kind of the broker.
    pub enum OutboxBroker {
        /// The delay queue, on Redis.
        Delay = "delay",
        /// A quorum queue of RabbitMQ.
        Rabbitmq = "rabbitmq",
        /// A stream, on Redis.
        Streams = "redis-streams",
        /// A topic of RocketMQ.
        #[cfg(feature = "rocketmq")]
        Rocketmq = "rocketmq",
    }
}

impl OutboxBroker {
    /// Returns the address for processes, which contains the kind.
    fn address(self, url: &str) -> String {
        format!("{} {url}", self.name())
    }

    /// Returns the kind and the URL of an address for processes.
    pub(super) fn of(address: &str) -> anyhow::Result<(Self, &str)> {
        let parts = address.split_once(' ').and_then(|(name, url)| Some((Self::named(name)?, url)));
        parts.with_context(|| format!("{address} is no broker"))
    }

    /// Returns the destination that relays use.
    pub(super) fn topic(self) -> &'static str {
        match self {
            Self::Delay => TOPIC,
            Self::Rabbitmq => rabbit::TOPIC,
            Self::Streams => QUEUE,
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq => QUEUE,
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
    Streams(Arc<RedisServer>),
    #[cfg(feature = "rocketmq")]
    Rocketmq(Arc<RocketServer>),
}

/// A running broker.
pub(super) struct Started {
    pub(super) broker: Broker,
    /// The address for processes, through the proxy.
    pub(super) by_proxy: String,
    pub(super) server: (Arc<dyn Server>, Proxy),
}

impl Broker {
    /// Starts the broker and declares its queues.
    pub(super) async fn start(kind: OutboxBroker) -> anyhow::Result<Started> {
        match kind {
            OutboxBroker::Delay => {
                let (server, proxy) = server::start(|| RedisServer::builder().aof().start()).await?;
                let broker = Self::Delay(builder(&server.url()).connect().await?);
                Ok(Started { broker, by_proxy: kind.address(&proxy.url()), server: (Arc::new(server), proxy) })
            }
            OutboxBroker::Streams => {
                let (server, proxy) = streams::start().await?;
                let (server, by_proxy) = (Arc::new(server), kind.address(&proxy.url()));
                Ok(Started { broker: Self::Streams(server.clone()), by_proxy, server: (server, proxy) })
            }
            #[cfg(feature = "rocketmq")]
            OutboxBroker::Rocketmq => {
                let (server, proxy) = rocket::start().await?;
                let by_proxy = kind.address(&server.name_server());
                let server = Arc::new(server);
                Ok(Started { broker: Self::Rocketmq(server.clone()), by_proxy, server: (server, proxy) })
            }
            OutboxBroker::Rabbitmq => {
                let (server, proxy) = server::start(RabbitServer::start).await?;
                let server = Arc::new(server);
                rabbit::declare(&server).await.context("RabbitMQ does not get ready")?;
                let by_proxy = kind.address(&server.url().replace(&server.address(), &proxy.address()));
                Ok(Started { broker: Self::Rabbitmq(server.clone()), by_proxy, server: (server, proxy) })
            }
        }
    }

    /// Returns the number of unsettled messages, without the dead letters.
    pub(super) async fn unsettled(&self) -> Option<u64> {
        match self {
            Self::Delay(queue) => unsettled(queue).await,
            Self::Rabbitmq(server) => rabbit::unsettled(server).await,
            Self::Streams(server) => streams::left(server).ok().map(sum),
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq(server) => Some(sum(rocket::left(server))),
        }
    }

    /// Returns the ids of all dead letters.
    pub(super) async fn letters(&self) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Delay(queue) => {
                let (mut letters, mut all) = (DelayDeadLetters::new(queue), Vec::new());
                while let Some(StoredLetter { delivery, .. }) = letters.next().await? {
                    all.push(delivery.id.context("a dead letter without an id")?);
                }
                Ok(all)
            }
            Self::Rabbitmq(server) => rabbit::letters(server).await,
            Self::Streams(server) => {
                Ok(streams::entries(server, streams::DEAD)?.into_iter().map(|(_, id)| id).collect())
            }
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq(server) => {
                let letters = rocket::read_all(server, rocket::DEAD).await?.into_iter();
                letters.map(|delivery| delivery.id.context("a dead letter without an id")).collect()
            }
        }
    }

    /// Returns all accepted messages. The delay queue keeps no list: its members have rising numbers, which are part of
    /// each delivery.
    pub(super) async fn tape(&self) -> anyhow::Result<Option<Vec<Accepted>>> {
        Ok(Some(match self {
            Self::Delay(_) => return Ok(None),
            Self::Rabbitmq(server) => {
                let ids = rabbit::tape(server).await?.into_iter().enumerate();
                ids.map(|(number, id)| Accepted { id, position: format!("{number:09}") }).collect()
            }
            Self::Streams(server) => {
                let entries = streams::entries(server, QUEUE)?.into_iter();
                entries.map(|(position, id)| Accepted { id, position }).collect()
            }
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq(server) => {
                // All messages of an aggregate are in one queue of the topic.
                let accepted = |delivery: Delivery| {
                    let Position { partition, offset, .. } = &delivery.position;
                    let offset: u64 = offset.as_deref().unwrap_or_default().parse()?;
                    let position = format!("{partition:?} {offset:012}");
                    Ok(Accepted { id: delivery.id.context("a message without an id")?, position })
                };
                let messages = rocket::read_all(server, QUEUE).await?.into_iter();
                messages.map(accepted).collect::<anyhow::Result<_>>()?
            }
        }))
    }
}

fn sum(counts: Vec<(String, u64)>) -> u64 {
    counts.into_iter().map(|(_, count)| count).sum()
}

/// Returns a publisher to the broker of this address.
pub(super) async fn publisher(address: &str) -> anyhow::Result<Arc<dyn Publish>> {
    let (kind, url) = OutboxBroker::of(address)?;
    Ok(match kind {
        OutboxBroker::Delay => Arc::new(DelayProducer::new(&queue(url).await)),
        OutboxBroker::Rabbitmq => Arc::new(rabbit::publisher(url)?),
        OutboxBroker::Streams => Arc::new(StreamsPublisher::new(url)?.id_field(streams::ID)),
        #[cfg(feature = "rocketmq")]
        OutboxBroker::Rocketmq => Arc::new(rocket::publisher(url)?),
    })
}

/// Returns the builder of all processes.
fn builder(url: &str) -> DelayQueueBuilder {
    DelayQueue::builder(url, TOPIC).slots(SLOTS).visibility(VISIBILITY).max_retries(RETRIES)
}

/// Connects to the queue once the server can be reached.
pub(super) async fn queue(url: &str) -> DelayQueue {
    connected(|| builder(url).connect()).await
}
