//! Creation of topics.
use std::time::Duration;

use idempotent_mq::SourceError;

use crate::error::{failure, is_final, transient};
use crate::producer::MessageProducer;
use crate::settings::SourceSettings;

/// The broker's template for new topics.
pub(crate) const TEMPLATE: &str = "TBW102";
/// A topic that each broker has and that is open for writing.
pub(crate) const ON_EACH_BROKER: &str = "SELF_TEST_TOPIC";
/// Number of queues for retries, which are shared among the group.
const RETRY_QUEUES: u32 = 4;
const DEAD_LETTER_QUEUES: u32 = 1;
/// Number of checks until the name server must know a new topic.
const CHECKS: u32 = 50;
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Creates the missing topics for retries and dead letters.
pub(crate) async fn provide_own_topics(
    producer: &MessageProducer,
    settings: &SourceSettings,
) -> Result<(), SourceError> {
    let SourceSettings { topic, retry_topic, dead_topic, .. } = settings;
    let known = producer.queue_count(topic).await;
    known.map_err(|error| {
        failure("looking up the topic: unknown to the name server, or the name server is unreachable", error)
    })?;
    for (own, queues) in [(retry_topic, RETRY_QUEUES), (dead_topic, DEAD_LETTER_QUEUES)] {
        provide(producer, own, topic, queues).await?;
    }
    Ok(())
}

/// Creates the missing topics, including the consumed one.
pub(crate) async fn declare(
    producer: &MessageProducer,
    settings: &SourceSettings,
    queues: u32,
) -> Result<(), SourceError> {
    provide(producer, &settings.topic, TEMPLATE, queues).await?;
    provide_own_topics(producer, settings).await
}

/// Creates a topic on the brokers of `template`. An existing topic stays unchanged.
async fn provide(producer: &MessageProducer, topic: &str, template: &str, queues: u32) -> Result<(), SourceError> {
    if producer.queue_count(topic).await.is_ok() {
        return Ok(());
    }
    let created = producer.create_topic(topic, template, queues).await;
    created.map_err(|error| match is_final(&error) {
        true => failure("creating a missing topic: permission denied; create the topic with the broker's tools", error),
        false => failure("creating a missing topic failed", error),
    })?;
    for _ in 0..CHECKS {
        if producer.queue_count(topic).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    Err(transient("creating a missing topic: the name server does not yet know the new topic"))
}
