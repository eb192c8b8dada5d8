//! The source, which consumes a topic.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_mq::{
    DelaySupport, Received, ServerUrl, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind,
};
use tokio::sync::oneshot;

use crate::SettingError;
use crate::client::{ClientSettings, answer_of, spawn_client};
use crate::delay_levels::DelayLevels;
use crate::error::failure;
use crate::intake::SessionIntake;
use crate::producer::MessageProducer;
use crate::settings::{MAX_LISTENERS, SourceSettings};
use crate::settler::{RocketSettler, RocketTag};
use crate::topics;

/// A source that consumes a topic of RocketMQ as a member of a consumer group. The [crate documentation](crate) has an example,
/// and lists the topics and limits of a source.
#[derive(Debug)]
pub struct RocketSource {
    settings: Arc<SourceSettings>,
    intake: Option<SessionIntake>,
    /// Maximum number of deliveries that the consumer holds: the room of the first `receive`.
    prefetch: Option<usize>,
}

/// A builder for a [`RocketSource`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RocketSourceBuilder {
    settings: SourceSettings,
    levels: Option<String>,
}

impl RocketSource {
    /// Returns a builder for a source that consumes this topic as a member of this group. The URL has the
    /// [form](crate::URL_FORM) `rocketmq://HOST`. All members of a group must have the same topic and tags.
    pub fn builder(
        server: impl Into<ServerUrl>,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> RocketSourceBuilder {
        let (topic, group) = (topic.into(), group.into());
        RocketSourceBuilder {
            settings: SourceSettings {
                client: ClientSettings::new(&server.into()),
                topic_name: topic.as_str().into(),
                retry_topic: format!("{group}-retry"),
                dead_topic: format!("{group}-dead"),
                topic,
                group,
                tags: "*".to_owned(),
                delay_levels: DelayLevels::default(),
                batch: 1,
                expires_at_header: None,
                orderly: false,
            },
            levels: None,
        }
    }

    /// Connects to the name servers with the default settings, and creates missing topics for retries and dead letters.
    /// The consumed topic must exist.
    ///
    /// A source of the [builder](Self::builder) connects at the first [`receive`](Source::receive) instead, and waits
    /// for servers that are unreachable.
    ///
    /// # Errors
    /// - `Fatal`: a setting is invalid, or access is denied.
    /// - `Transient`: the servers cannot be reached, or the topic is missing.
    ///
    /// # Cancellation
    /// Some of the topics may be created.
    pub async fn connect(
        server: impl Into<ServerUrl>,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> Result<Self, SourceError> {
        let source = Self::builder(server, topic, group).build()?;
        source.provide(None).await?;
        Ok(source)
    }

    /// Creates the topic with this number of queues, and the topics for retries and dead letters, unless they exist. A consumer
    /// creates the latter two at its start, but never the topic itself.
    ///
    /// # Errors
    /// The errors of [`receive`](Source::receive). There is a single attempt.
    ///
    /// # Cancellation
    /// Some of the topics may be created.
    pub async fn declare(&self, queues: u32) -> Result<(), SourceError> {
        self.provide(Some(queues)).await
    }

    /// Creates the missing topics for retries and dead letters, and with a number of queues the consumed topic, too.
    async fn provide(&self, queues: Option<u32>) -> Result<(), SourceError> {
        let (done, provided) = oneshot::channel();
        let settings = self.settings.clone();
        spawn_client(0, move |runtime| async move {
            let producer = MessageProducer::start(&runtime, &settings.client, &settings.group).await;
            let result = match producer {
                Ok(producer) => {
                    let result = match queues {
                        Some(queues) => topics::declare(&runtime, &producer, &settings, queues).await,
                        None => topics::provide_own_topics(&runtime, &producer, &settings).await,
                    };
                    producer.shut_down().await;
                    result
                }
                Err(error) => Err(failure("declaring topics: the client could not be started", error)),
            };
            drop(done.send(result));
        });
        answer_of("declaring topics", provided).await
    }
}

impl RocketSourceBuilder {
    /// Sets the tags to consume, such as `paid || refunded`. Messages with other tags are skipped.
    ///
    /// # Default
    /// `*`: all messages
    pub fn tags(mut self, expression: impl Into<String>) -> Self {
        self.settings.tags = expression.into();
        self
    }

    /// Sets the topic for copies that wait for a retry. Each group needs its own topic.
    ///
    /// # Default
    /// The group's name with the suffix `-retry`
    pub fn retry_topic(mut self, topic: impl Into<String>) -> Self {
        self.settings.retry_topic = topic.into();
        self
    }

    /// Sets the topic for dead letters.
    ///
    /// # Default
    /// The group's name with the suffix `-dead`
    pub fn dead_letter_topic(mut self, topic: impl Into<String>) -> Self {
        self.settings.dead_topic = topic.into();
        self
    }

    /// Sets the delay levels of the broker, its setting `messageDelayLevel`.
    ///
    /// # Default
    /// `1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h`
    pub fn delay_levels(mut self, levels: impl Into<String>) -> Self {
        self.levels = Some(levels.into());
        self
    }

    /// Sets the maximum number of messages in one call of the client's listener, 1 to 1024. Each call occupies a thread until
    /// all its messages are settled. A large prefetch needs fewer threads with larger batches.
    ///
    /// # Default
    /// 1
    pub fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// Sets the property with a message's expiry time, in ms since 1970. Expired messages are acknowledged without a run.
    ///
    /// # Default
    /// None
    pub fn expires_at_header(mut self, name: impl Into<String>) -> Self {
        self.settings.expires_at_header = Some(name.into());
        self
    }

    /// Consumes each queue in order: a message is delivered after all earlier messages of its queue are settled. A
    /// message with an [aggregate](idempotent_mq::OutboundMessage::aggregate) is in the queue of this aggregate.
    ///
    /// A failed message is retried in place, after any delay, while the later messages of its queue wait. A
    /// dead-lettered message no longer holds them back. The number of attempts is in memory: after a crash, the
    /// delivery counts from 1 again. The executor's record still counts each run.
    ///
    /// Each queue that this member consumes occupies one of the consumer's concurrent handlers at most. All members of
    /// a group must use the same mode.
    ///
    /// # Default
    /// Messages of a queue are delivered concurrently, and retries are copies that arrive after later messages
    pub fn orderly(mut self) -> Self {
        self.settings.orderly = true;
        self
    }

    /// Builds the source, which connects at the first [`receive`](Source::receive).
    ///
    /// # Errors
    /// A setting is invalid, or settings contradict each other.
    pub fn build(self) -> Result<RocketSource, SettingError> {
        let Self { mut settings, levels } = self;
        if let Some(levels) = levels {
            settings.delay_levels = DelayLevels::parse(&levels)?;
        }
        settings.check()?;
        Ok(RocketSource { settings: Arc::new(settings), intake: None, prefetch: None })
    }
}

#[async_trait]
impl Source for RocketSource {
    type Tag = RocketTag;

    fn capabilities(&self) -> SourceCapabilities {
        if self.settings.orderly {
            return SourceCapabilities::new(DelaySupport::Any).keeps_order();
        }
        // Retries are copies, without a limit by the broker. The broker's counter counts messages that were sent back and not
        // crashes, so the counter does not replace a count of deliveries.
        SourceCapabilities::new(DelaySupport::UpTo(self.settings.delay_levels.longest()))
    }

    fn settler(&self) -> Arc<dyn Settle<RocketTag>> {
        Arc::new(RocketSettler)
    }

    async fn receive(&mut self, room: usize) -> Result<Received<RocketTag>, SourceError> {
        let prefetch = *self.prefetch.get_or_insert(room);
        let batch = self.settings.batch;
        if prefetch.div_ceil(batch) > MAX_LISTENERS {
            let text = format!(
                "receiving: a prefetch of {prefetch} in batches of {batch} needs more than {MAX_LISTENERS} threads, the \
                 client's limit; set a larger batch"
            );
            return Err(SourceError::new(SourceErrorKind::Fatal, text));
        }
        let intake = match &mut self.intake {
            Some(intake) => intake,
            // After an error the consumer calls again, with growing pauses.
            none => none.insert(SessionIntake::open(&self.settings, prefetch).await?),
        };
        Ok(Received::Deliveries(intake.next(room).await))
    }

    async fn close(&mut self) {
        if let Some(intake) = &self.intake {
            intake.close().await;
        }
    }
}
