//! RocketMQ: a topic, consumed by a group.
use std::time::Duration;

use anyhow::anyhow;
use idempotent::rocketmq::{RocketPublisher, RocketSource};

use super::outgoing::{IN_FLIGHT, Lines, send_each};
use super::url::SourceUrl;
use super::{Address, Place, Source};

#[derive(Debug)]
pub(crate) struct RocketMq {
    pub(super) at: Address,
    server: String,
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
        let server = format!("rocketmq://{host}:{}", url.port().unwrap_or(9876));
        Ok(Self { at: Address::new(url, "topic", topic), server, group })
    }
}

impl Place for RocketMq {
    async fn source(&self) -> anyhow::Result<impl Source> {
        let source = RocketSource::builder(&*self.server, &self.at.name, &self.group).build();
        let source = source.map_err(|error| anyhow!("--source {}: {error}", self.at.shown))?;
        let hint = "is RocketMQ's name server there, and does it know a broker?";
        source.declare(QUEUES).await.map_err(|error| self.at.unusable(&error, hint))?;
        Ok(source)
    }

    async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        let publisher = RocketPublisher::builder(&*self.server).give_up_after(PATIENCE).build()?;
        // The publisher repeats a message itself.
        let send = async |message: &_| publisher.publish(message).await.map(drop);
        send_each(lines, (&self.at.name, &self.at), IN_FLIGHT, send).await
    }

    fn dead_letters(&self) -> String {
        format!("the topic {}-dead", self.group)
    }
}
