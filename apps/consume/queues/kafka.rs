//! Kafka: a topic, consumed by a group.
use std::time::Duration;

use idempotent::kafka::{KafkaPublisher, KafkaSource, KafkaSourceBuilder};
use idempotent::mq::SourceError;

use super::listen::Listening;
use super::outgoing::{Lines, publish};
use super::url::SourceUrl;
use super::{Address, Place, Source};
use crate::summary::Over;

#[derive(Debug)]
pub(crate) struct Kafka {
    pub(super) at: Address,
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
        Ok(Self { at: Address::new(url, "topic", topic), group, member })
    }

    fn builder(&self) -> KafkaSourceBuilder {
        let source = KafkaSource::builder(&*self.at.url, &*self.at.name, &*self.group);
        let source = source.declare(PARTITIONS).session_timeout(SESSION);
        match &self.member {
            Some(member) => source.member(&**member),
            None => source,
        }
    }

    fn unusable(&self, error: &SourceError) -> anyhow::Error {
        self.at.unusable(error, "is Kafka there, and may the user of --source use the topic and the group?")
    }
}

impl Place for Kafka {
    async fn source(&self) -> anyhow::Result<impl Source> {
        self.builder().connect().await.map_err(|error| self.unusable(&error))
    }

    /// Creates missing topics. The group does not see this process before it consumes.
    async fn declare(&self) -> anyhow::Result<()> {
        self.builder().prepare_topics().await.map_err(|error| self.unusable(&error))
    }

    async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        publish(&KafkaPublisher::new(&*self.at.url), &self.at.name, &self.at, lines).await
    }

    fn dead_letters(&self) -> String {
        format!("the topic {}-dead", self.at.name)
    }

    async fn consume(&self, listening: Listening<'_>) -> anyhow::Result<Over> {
        let source = self.builder().connect().await.map_err(|error| self.unusable(&error))?;
        listening.run_from(source.joined(), source, self.dead_letters()).await
    }
}
