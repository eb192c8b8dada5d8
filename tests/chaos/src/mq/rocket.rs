//! RocketMQ.
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use idempotent::mq::{Delivery, OutboundMessage, PublishErrorKind, Received, Settlement, Source};
use idempotent::rocketmq::{RocketPublisher, RocketSource};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RocketServer;
use tokio::time::timeout;

use super::broker::{Broker, Letter, QUEUE};
use super::copy::Copy;
use crate::server::Server;

pub(super) struct Rocket {
    // Dropped in this order.
    publisher: RocketPublisher,
    proxy: Proxy,
    server: RocketServer,
}

const GROUP: &str = "billing";
const RETRIES: &str = "billing-retry";
pub(crate) const DEAD: &str = "billing-dead";
const MARK: &str = "x-idempotent-";
/// The delay levels of the broker, short enough for a run.
const DELAYS: &str = "1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 3m 4m 5m 6m";
const LEVELS: u32 = 18;
/// Some for each worker.
const QUEUES: u32 = 8;
/// The address of the broker for all clients except the judge.
const IN_FRONT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The time for all attempts of a publisher.
const SOON: Duration = Duration::from_secs(4);
/// The time for a reader to receive the next dead letter. A reader starts slowly.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of messages that a reader holds, each of which occupies a thread of the client.
const ROOM: usize = 100;

/// The URL is the name server's address.
pub(crate) fn source(name_server: &str) -> anyhow::Result<RocketSource> {
    Ok(RocketSource::builder(name_server, QUEUE, GROUP).delay_levels(DELAYS).build()?)
}

/// A dead letter as it must not be.
pub(super) async fn bury_bare(name_server: &str, delivery: &Delivery) -> anyhow::Result<()> {
    let letter = OutboundMessage::new(DEAD, delivery.id.clone().unwrap_or_default(), delivery.body.clone());
    RocketPublisher::builder(name_server).build()?.publish(&letter).await?;
    Ok(())
}

pub(crate) fn publisher(name_server: &str) -> anyhow::Result<RocketPublisher> {
    Ok(RocketPublisher::builder(name_server).give_up_after(SOON).build()?)
}

/// Starts a broker with the topics of the source.
pub(crate) async fn start() -> anyhow::Result<(RocketServer, Proxy)> {
    let started = tokio::task::spawn_blocking(|| RocketServer::behind(IN_FRONT, DELAYS)).await;
    let server = started.context("RocketMQ does not start")?;
    let direct: SocketAddr = server.address().parse()?;
    let proxy = Proxy::start_at((IN_FRONT, direct.port()).into(), &server.address()).await;
    source(&server.name_server())?.declare(QUEUES).await.context("RocketMQ does not get ready")?;
    Ok((server, proxy))
}

/// Returns the numbers of unsettled messages that are not 0. Delayed messages move to the retry topic, so this order of
/// queries misses none.
pub(crate) fn left(server: &RocketServer) -> Vec<(String, u64)> {
    let counts = [
        (QUEUE, server.backlog(QUEUE, GROUP)),
        ("delayed", (1..=LEVELS).map(|level| server.delayed(level)).sum()),
        (RETRIES, server.backlog(RETRIES, GROUP)),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Reads all messages of a topic.
pub(crate) async fn read_all(server: &RocketServer, topic: &str) -> anyhow::Result<Vec<Delivery>> {
    let there = usize::try_from(server.published(topic))?;
    let mut source = RocketSource::builder(server.name_server(), topic, "judge").build()?;
    let settler = source.settler();
    let mut all = Vec::new();
    while all.len() < there {
        let received = timeout(PATIENCE, source.receive(ROOM)).await;
        let received = received.with_context(|| format!("{} of {there} messages of {topic} can be read", all.len()))?;
        let Received::Deliveries(deliveries) = received? else { bail!("the topic {topic} is gone") };
        for (delivery, tag) in deliveries {
            settler.settle(&delivery, &tag, &Settlement::Ack).await?;
            all.push(delivery);
        }
    }
    source.close().await;
    Ok(all)
}

impl Rocket {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let (server, proxy) = start().await?;
        let publisher = publisher(&server.name_server())?;
        Ok(Self { publisher, proxy, server })
    }
}

#[async_trait]
impl Broker for Rocket {
    fn url(&self) -> String {
        self.server.name_server()
    }

    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool> {
        let outgoing = OutboundMessage::new(QUEUE, &copy.id, copy.body.clone())
            .business_key(&copy.id)
            .header("copy", copy.name.as_str())
            .header("trace", copy.trace.clone());
        match self.publisher.publish(&outgoing).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == PublishErrorKind::Refused => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    /// The publisher of the adapter escapes such names.
    fn forges(&self) -> bool {
        false
    }

    fn letter(&self, copy: &Copy) -> Letter {
        let headers = [("copy", copy.name.as_bytes()), ("trace", copy.trace.as_slice())];
        letter(&copy.body, Some(&copy.id), Some(&copy.id), headers.into_iter())
    }

    fn left(&self) -> anyhow::Result<Vec<(String, u64)>> {
        Ok(left(&self.server))
    }

    async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let letters = read_all(&self.server, DEAD).await?;
        let content = |delivery: &Delivery| {
            let headers = delivery.headers.iter();
            letter(&delivery.body, delivery.id.as_deref(), delivery.business_key.as_deref(), headers)
        };
        Ok(letters.iter().map(content).collect())
    }

    fn place(&self) -> (&dyn Server, &Proxy) {
        (&self.server, &self.proxy)
    }
}

fn letter<'a>(
    body: &[u8],
    id: Option<&str>,
    key: Option<&str>,
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Letter {
    let mut kept: Vec<_> = headers.filter(|(name, _)| !name.starts_with(MARK)).collect();
    kept.sort_unstable();
    let copy = kept.iter().find(|(name, _)| *name == "copy");
    let copy = copy.and_then(|(_, name)| String::from_utf8(name.to_vec()).ok());
    let text = kept.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
    let headers = text.collect::<Vec<_>>().join(" ");
    Letter { copy, content: format!("{} id={id:?} key={key:?} {headers}", body.escape_ascii()) }
}
