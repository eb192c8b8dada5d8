//! The topics beside the one that is consumed.
use std::time::Duration;

use idempotent_mq::SourceError;

use crate::client::Sender;
use crate::error::{failed, is_final, transient};
use crate::settings::Settings;

/// The broker's pattern for new topics.
pub(crate) const PATTERN: &str = "TBW102";
/// A topic that each broker has, and may be sent to.
pub(crate) const OF_EACH_BROKER: &str = "SELF_TEST_TOPIC";
/// Retries are shared out among the group by these.
const RETRY_QUEUES: u32 = 4;
const DEAD_QUEUES: u32 = 1;
/// Until the name server knows a new topic.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(50);

/// Makes sure that the topics for retries and dead letters are there.
pub(crate) async fn provide(sender: &Sender, settings: &Settings) -> Result<(), SourceError> {
    let Settings { topic, retry_topic, dead_topic, .. } = settings;
    let known = sender.queues(topic).await;
    known.map_err(|error| failed("the name server knows no such topic, or is away", error))?;
    for (beside, queues) in [(retry_topic, RETRY_QUEUES), (dead_topic, DEAD_QUEUES)] {
        make(sender, beside, topic, queues).await?;
    }
    Ok(())
}

/// The topic itself, too.
pub(crate) async fn declare(sender: &Sender, settings: &Settings, queues: u32) -> Result<(), SourceError> {
    make(sender, &settings.topic, PATTERN, queues).await?;
    provide(sender, settings).await
}

/// Where it is there already, nothing about it is changed.
async fn make(sender: &Sender, topic: &str, like: &str, queues: u32) -> Result<(), SourceError> {
    if sender.queues(topic).await.is_ok() {
        return Ok(());
    }
    let made = sender.create(topic, like, queues).await;
    made.map_err(|error| match is_final(&error) {
        true => failed("a topic is missing, and this client may not make it: make it by hand", error),
        false => failed("a topic is missing and could not be made", error),
    })?;
    for _ in 0..TRIES {
        if sender.queues(topic).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(transient("a topic was made, and the name server does not know it yet"))
}
