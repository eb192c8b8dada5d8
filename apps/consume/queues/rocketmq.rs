//! RocketMQ: a topic, consumed by a group.
use std::time::Duration;

use anyhow::anyhow;
use idempotent::rocketmq::{RocketPublisher, RocketSource};

use super::outgoing::{Lines, publish};
use super::url::SourceUrl;
use super::{Address, Place, Source};

#[derive(Debug)]
pub(crate) struct RocketMq {
<<<<<<< HEAD
    url: String,
    shown: String,
    topic: String,
=======
    pub(super) at: Address,
    name_server: String,
>>>>>>> less-operate
    group: String,
}

/// The number of queues of a created topic.
const QUEUES: u32 = 4;
/// The time for which an unreachable broker is retried.
const PATIENCE: Duration = Duration::from_secs(60);

impl RocketMq {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let (topic, group) = (source.need("topic", "topic")?, source.need("group", "group")?);
        let url = source.into_url("rocketmq", "topic and group")?;
        let host = url.host_str().unwrap_or_default();
<<<<<<< HEAD
        Ok(Self { url: format!("rocketmq://{host}:{}", url.port().unwrap_or(9876)), shown: shown(&url), topic, group })
=======
        let name_server = format!("{host}:{}", url.port().unwrap_or(9876));
        Ok(Self { at: Address::new(url, "topic", topic), name_server, group })
>>>>>>> less-operate
    }
}

<<<<<<< HEAD
    pub(crate) async fn source(&self) -> anyhow::Result<RocketSource> {
        let source = RocketSource::builder(&*self.url, &self.topic, &self.group).build();
        let source = source.map_err(|error| anyhow!("--source {}: {error}", self.shown))?;
        source.declare(QUEUES).await.map_err(|error| {
            anyhow!("cannot use {self}: {}; is RocketMQ's name server there, and does it know a broker?", told(&error))
        })?;
        Ok(source)
    }

    /// Publishes the lines. Returns the number of stored messages.
    pub(crate) async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        let publisher = RocketPublisher::builder(&*self.url).give_up_after(PATIENCE).build()?;
        let publisher = &publisher;
        let lines = stream::unfold(lines, async |mut lines| Some((lines.recv().await?, lines)));
        let sending = lines.map(|line| async move {
            let line = line?;
            let sent = publisher.publish(&OutboundMessage::new(&self.topic, line.id, line.body)).await;
            sent.map(drop).map_err(|error| anyhow!("line {} for {self}: {}", line.number, told(&error)))
        });
        sending.buffer_unordered(IN_FLIGHT).try_fold(0, async |sent, ()| Ok(sent + 1)).await
=======
impl Place for RocketMq {
    async fn source(&self) -> anyhow::Result<impl Source> {
        let source = RocketSource::builder(&self.name_server, &self.at.name, &self.group).build();
        let source = source.map_err(|error| anyhow!("--source {}: {error}", self.at.shown))?;
        let hint = "is RocketMQ's name server there, and does it know a broker?";
        source.declare(QUEUES).await.map_err(|error| self.at.unusable(&error, hint))?;
        Ok(source)
    }

    async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        let publisher = RocketPublisher::builder(&self.name_server).give_up_after(PATIENCE).build()?;
        publish(&publisher, &self.at.name, &self.at, lines).await
>>>>>>> less-operate
    }

    fn dead_letters(&self) -> String {
        format!("the topic {}-dead", self.group)
    }
}
