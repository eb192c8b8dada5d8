//! Kafka: a topic, consumed by a group.
use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use idempotent::kafka::{KafkaPublisher, KafkaSource};
use idempotent::mq::Source;

use super::outgoing::Lines;
use super::url::{SourceUrl, shown};
use super::{publishing, told};

#[derive(Debug)]
pub(crate) struct Kafka {
    /// The URL with its password.
    url: String,
    shown: String,
    topic: String,
    group: String,
}

/// The number of partitions of a created topic.
const PARTITIONS: u32 = 4;
/// The time after which another worker takes over the partitions of a killed one. Brokers accept no shorter time by default.
const SESSION: Duration = Duration::from_secs(6);

impl Kafka {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let (topic, group) = (source.need("topic", "topic")?, source.need("group", "group")?);
        let scheme = if source.scheme() == "kafkas" { "kafkas" } else { "kafka" };
        let url = source.into_url(scheme, "topic and group")?;
        Ok(Self { shown: shown(&url), url: url.into(), topic, group })
    }

    pub(crate) async fn source(&self) -> anyhow::Result<KafkaSource> {
        let source = KafkaSource::builder(&*self.url, &*self.topic, &*self.group);
        let source = source.declare(PARTITIONS).session_timeout(SESSION);
        source.connect().await.map_err(|error| {
            anyhow!(
                "cannot use {self}: {}; is Kafka there, and may the user of --source use the topic and the group?",
                told(&error)
            )
        })
    }

    /// Creates missing topics, and leaves the group, so that the group does not wait for this member.
    pub(crate) async fn declare(&self) -> anyhow::Result<()> {
        self.source().await?.close().await;
        Ok(())
    }

    /// Publishes the lines. Returns the number of confirmed messages.
    pub(crate) async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        publishing::publish(&KafkaPublisher::new(&*self.url), &self.topic, self, lines).await
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("the topic {}-dead", self.topic)
    }
}

impl fmt::Display for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the topic {} at {}", self.topic, self.shown)
    }
}
