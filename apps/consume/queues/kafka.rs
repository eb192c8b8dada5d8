//! Kafka: a topic, consumed by a group.
use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use idempotent::kafka::{KafkaPublisher, KafkaSource, KafkaSourceBuilder};
use idempotent::mq::SourceError;

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
    /// The name of a static member.
    member: Option<String>,
}

/// The number of partitions of a created topic.
const PARTITIONS: u32 = 4;
/// The time after which another worker takes over the partitions of a killed one. Brokers accept no shorter time by default.
const SESSION: Duration = Duration::from_secs(6);

impl Kafka {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let (topic, group) = (source.need("topic", "topic")?, source.need("group", "group")?);
        let member = source.take("member");
        let scheme = if source.scheme() == "kafkas" { "kafkas" } else { "kafka" };
        let url = source.into_url(scheme, "topic, group and member")?;
        Ok(Self { shown: shown(&url), url: url.into(), topic, group, member })
    }

    pub(crate) async fn source(&self) -> anyhow::Result<KafkaSource> {
        self.builder().connect().await.map_err(|error| self.unusable(&error))
    }

    /// Creates missing topics. The group does not see this process before it consumes.
    pub(crate) async fn declare(&self) -> anyhow::Result<()> {
        self.builder().prepare_topics().await.map_err(|error| self.unusable(&error))
    }

    fn builder(&self) -> KafkaSourceBuilder {
        let source = KafkaSource::builder(&*self.url, &*self.topic, &*self.group);
        let source = source.declare(PARTITIONS).session_timeout(SESSION);
        match &self.member {
            Some(member) => source.member(&**member),
            None => source,
        }
    }

    fn unusable(&self, error: &SourceError) -> anyhow::Error {
        anyhow!(
            "cannot use {self}: {}; is Kafka there, and may the user of --source use the topic and the group?",
            told(error)
        )
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
