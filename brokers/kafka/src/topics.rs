//! Topics that are created or checked before a member joins its group.
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use idempotent_mq::{SourceError, SourceErrorKind};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::connection_error::KeepsError;
use crate::error::{failure, fatal, transient};

/// The topics of a source.
#[derive(Debug)]
pub(crate) struct Topics {
    /// The topic and the retry topic.
    pub(crate) read: Vec<Arc<str>>,
    pub(crate) dead: Arc<str>,
    /// The settings of topics that are created, or `None` if all topics must exist.
    pub(crate) declare: Option<Declaration>,
}

/// The settings of topics that are created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declaration {
    pub(crate) partitions: i32,
    pub(crate) replicas: i32,
}

/// The maximum time of a step of connecting.
const LIMIT: Duration = Duration::from_secs(5);
/// The number of events that are read after a request for metadata.
const EVENTS: u32 = 64;
/// The maximum time of one request for metadata. The errors of the connection are examined in between.
const SLICE: Duration = Duration::from_millis(500);

impl Topics {
    /// Creates missing topics, or checks that all exist. Blocks the thread of the member.
    ///
    /// # Errors
    /// - `Fatal`: a topic is missing or cannot be created, or the broker rejects the user.
    /// - `Transient`: no broker can be reached.
    pub(crate) async fn prepare<C: KeepsError>(
        &self,
        consumer: &StreamConsumer<C>,
        config: &ClientConfig,
    ) -> Result<(), SourceError> {
        let mut missing = Vec::new();
        for topic in self.read.iter().chain([&self.dead]) {
            if !exists(consumer, topic, config)? {
                missing.push(topic.clone());
            }
        }
        let Some(declare) = self.declare.filter(|_| !missing.is_empty()) else {
            return match missing.first() {
                Some(topic) => Err(no_topic(topic)),
                None => Ok(()),
            };
        };
        self.create(&missing, declare, config).await?;
        let start = Instant::now();
        for topic in &missing {
            // The brokers learn of a new topic one after another.
            while !exists(consumer, topic, config)? {
                if start.elapsed() > LIMIT {
                    return Err(transient("creating topics", std::io::Error::other("a new topic does not appear")));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        missing: &[Arc<str>],
        declare: Declaration,
        config: &ClientConfig,
    ) -> Result<(), SourceError> {
        let doing = "creating topics";
        let mut config = config.clone();
        // Properties of a group member, for which the administration client logs warnings.
        for name in config.config_map().keys().map(|name| (*name).to_owned()).collect::<Vec<_>>() {
            if name.starts_with("group.") || CONSUMER_ONLY.contains(&name.as_str()) {
                config.remove(&name);
            }
        }
        let admin: AdminClient<DefaultClientContext> = config.create().map_err(|error| failure(doing, error))?;
        let new = |topic: &'_ Arc<str>| -> (i32, bool) {
            let is_dead = *topic == self.dead;
            (if is_dead { 1 } else { declare.partitions }, is_dead)
        };
        let topics: Vec<NewTopic<'_>> = missing
            .iter()
            .map(|topic| {
                let (partitions, is_dead) = new(topic);
                let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(declare.replicas));
                // A dead letter stays until it is put back or removed, which is a record without a value.
                if is_dead { new.set("cleanup.policy", "compact") } else { new }
            })
            .collect();
        let options = AdminOptions::new().request_timeout(Some(LIMIT)).operation_timeout(Some(LIMIT));
        let created = admin.create_topics(&topics, &options).await.map_err(|error| failure(doing, error))?;
        for result in created {
            match result {
                Ok(_) | Err((_, Code::TopicAlreadyExists)) => {}
                Err((topic, code)) => {
                    let text =
                        format!("the broker does not create `{topic}`: {code}; create it by `kafka-topics --create`");
                    return Err(fatal(doing, &text));
                }
            }
        }
        Ok(())
    }
}

const CONSUMER_ONLY: [&str; 8] = [
    "fetch.wait.max.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "auto.offset.reset",
    "enable.partition.eof",
];

/// Returns the error for a topic that does not exist.
pub(crate) fn no_topic(topic: &str) -> SourceError {
    let remedy = "create it by `declare` on the builder, or by `kafka-topics --create`";
    fatal("opening the topics", &format!("the topic `{topic}` does not exist; {remedy}"))
}

/// Returns whether a topic exists. Waits for the first connection.
///
/// # Errors
/// - `Fatal`: the broker rejects the user.
/// - `Transient`: no broker can be reached.
pub(crate) fn exists<C: KeepsError>(
    consumer: &StreamConsumer<C>,
    topic: &str,
    config: &ClientConfig,
) -> Result<bool, SourceError> {
    let start = Instant::now();
    loop {
        let error = match consumer.fetch_metadata(Some(topic), SLICE) {
            Ok(metadata) => {
                consumer.context().connection_error().clear();
                let topic = metadata.topics().iter().find(|found| found.name() == topic);
                match topic.map(|topic| (topic.error().map(Code::from), topic.partitions().len())) {
                    Some((None, partitions)) if partitions > 0 => return Ok(true),
                    None | Some((Some(Code::UnknownTopicOrPartition) | None, _)) => return Ok(false),
                    Some((Some(code), _)) => KafkaError::MetadataFetch(code),
                }
            }
            Err(error) => error,
        };
        // The reason is an event of the connection, such as a rejected password.
        // A call that reads a line for the log returns nothing, although other events follow.
        (0..EVENTS).for_each(|_| drop(consumer.recv().now_or_never()));
        let error = consumer.context().connection_error().of_call(config, LIMIT, error);
        if error.kind() == SourceErrorKind::Fatal || start.elapsed() > LIMIT {
            return Err(error);
        }
    }
}
