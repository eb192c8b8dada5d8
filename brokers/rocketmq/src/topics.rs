//! Creation of topics.
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::SourceError;
use rocketmq_client_rust::ClientRuntime;
use tokio::time::timeout;

use crate::access::check_access;
use crate::client::ClientSettings;
use crate::error::{failure, is_denied, transient};
use crate::name_servers::look_up;
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

/// Time limit for the creation of a topic, in which the client tries several times.
const CREATION_LIMIT: Duration = Duration::from_secs(10);

/// Checks the access to the topic, and creates the missing topics for retries and dead letters.
pub(crate) async fn provide_own_topics(
    runtime: &Arc<ClientRuntime>,
    producer: &MessageProducer,
    settings: &SourceSettings,
) -> Result<(), SourceError> {
    let SourceSettings { client, topic, retry_topic, dead_topic, .. } = settings;
    if let Err(error) = look_up(producer, client, topic).await? {
        let text = format!(
            "connecting: the name server does not know the topic `{topic}`; check its name, create it by `declare`, or start its \
             broker"
        );
        return Err(transient(&text).with_cause(error));
    }
    check_access(runtime, settings).await?;
    for (own, queues) in [(retry_topic, RETRY_QUEUES), (dead_topic, DEAD_LETTER_QUEUES)] {
        provide(producer, client, own, topic, queues).await?;
    }
    Ok(())
}

/// Creates the missing topics, including the consumed one.
pub(crate) async fn declare(
    runtime: &Arc<ClientRuntime>,
    producer: &MessageProducer,
    settings: &SourceSettings,
    queues: u32,
) -> Result<(), SourceError> {
    provide(producer, &settings.client, &settings.topic, TEMPLATE, queues).await?;
    provide_own_topics(runtime, producer, settings).await
}

/// Creates a topic on the brokers of `template`. An existing topic stays unchanged.
async fn provide(
    producer: &MessageProducer,
    client: &ClientSettings,
    topic: &str,
    template: &str,
    queues: u32,
) -> Result<(), SourceError> {
    if look_up(producer, client, topic).await?.is_ok() {
        return Ok(());
    }
    let doing = format!("creating the missing topic `{topic}`");
    let created = timeout(CREATION_LIMIT, producer.create_topic(topic, template, queues)).await;
    created.map_err(|_| transient(&format!("{doing}: no answer of the broker; check that it is running")))?.map_err(
        |error| match is_denied(&error) {
            true => {
                let remedy =
                    "check the access key and the secret key in the URL, or create the topic with the broker's tools";
                failure(&format!("{doing}: permission denied; {remedy}"), error)
            }
            false => {
                let remedy = format!("check that a broker with the topic `{template}` is running");
                failure(&format!("{doing} failed: {error}; {remedy}"), error)
            }
        },
    )?;
    for _ in 0..CHECKS {
        if look_up(producer, client, topic).await?.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    Err(transient(&format!("{doing}: the name server does not yet know it")))
}
