//! The source.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_mq::{DelaySupport, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind};
use tokio::sync::oneshot;

use crate::SettingError;
use crate::client::{Sender, live};
use crate::delay_levels::Ladder;
use crate::error::{failed, transient};
use crate::session::Intake;
use crate::settings::{MOST_THREADS, Settings};
use crate::settler::Settler;
use crate::tag::RocketTag;
use crate::topics;

/// A topic of RocketMQ, as one group of consumers sees it. The [crate's docs](crate) say which topics it has beside that,
/// and what it cannot do.
#[derive(Debug)]
pub struct RocketSource {
    settings: Arc<Settings>,
    intake: Option<Intake>,
    /// What the consumer may hold at most: the first room it told.
    prefetch: Option<usize>,
}

/// Sets up a [`RocketSource`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RocketSourceBuilder {
    settings: Settings,
    levels: Option<String>,
}

impl RocketSource {
    /// A source of this topic for this group. The name servers are `HOST:PORT`, several of them `HOST:PORT;HOST:PORT`.
    /// All consumers of a group have to have the same topic and tags.
    pub fn builder(
        name_servers: impl Into<String>,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> RocketSourceBuilder {
        let (topic, group) = (topic.into(), group.into());
        RocketSourceBuilder {
            settings: Settings {
                name_servers: name_servers.into(),
                place: topic.as_str().into(),
                retry_topic: format!("{group}-retry"),
                dead_topic: format!("{group}-dead"),
                topic,
                group,
                tags: "*".to_owned(),
                ladder: Ladder::default(),
                batch: 1,
                expires_at_header: None,
            },
            levels: None,
        }
    }

    /// Makes sure now that the topic is there, with so many queues if it is not, and those for retries and dead letters.
    /// Those two are otherwise made when the consumer begins; the topic itself is not.
    ///
    /// # Errors
    /// As of [`receive`](Source::receive); it is tried once.
    ///
    /// # Cancellation
    /// They may have been made.
    pub async fn declare(&self, queues: u32) -> Result<(), SourceError> {
        let (done, declared) = oneshot::channel();
        let settings = self.settings.clone();
        live(0, move |runtime| async move {
            let sender = Sender::start(&runtime, &settings.name_servers, &settings.group).await;
            let result = match sender {
                Ok(sender) => {
                    let result = topics::declare(&sender, &settings, queues).await;
                    sender.end().await;
                    result
                }
                Err(error) => Err(failed("no client", error)),
            };
            drop(done.send(result));
        });
        declared.await.unwrap_or_else(|_| Err(transient("the client could not be started; its log says why")))
    }
}

impl RocketSourceBuilder {
    /// Only messages with one of these tags: `paid || refunded`. The others are passed over.
    ///
    /// # Default
    /// `*`: all
    pub fn tags(mut self, expression: impl Into<String>) -> Self {
        self.settings.tags = expression.into();
        self
    }

    /// The topic for copies that wait for their retry: of this group alone.
    ///
    /// # Default
    /// The group's name and `-retry`
    pub fn retry_topic(mut self, topic: impl Into<String>) -> Self {
        self.settings.retry_topic = topic.into();
        self
    }

    /// The topic for dead letters.
    ///
    /// # Default
    /// The group's name and `-dead`
    pub fn dead_letter_topic(mut self, topic: impl Into<String>) -> Self {
        self.settings.dead_topic = topic.into();
        self
    }

    /// The broker's `messageDelayLevel`, where somebody has changed that.
    ///
    /// # Default
    /// `1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h`
    pub fn delay_levels(mut self, levels: impl Into<String>) -> Self {
        self.levels = Some(levels.into());
        self
    }

    /// How many messages one call of the client's listener brings at most. A thread waits for each call until all of them
    /// are settled, so that a large prefetch needs fewer threads with larger batches.
    ///
    /// # Default
    /// 1
    pub fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// The property that says when a message is of no use any more: a number of ms since 1970. A message that is older is
    /// acknowledged without being run.
    ///
    /// # Default
    /// None
    pub fn expires_at_header(mut self, name: impl Into<String>) -> Self {
        self.settings.expires_at_header = Some(name.into());
        self
    }

    /// The source. It connects when it is first asked for deliveries.
    ///
    /// # Errors
    /// A name or an address that cannot be, or settings that do not fit each other.
    pub fn build(self) -> Result<RocketSource, SettingError> {
        let Self { mut settings, levels } = self;
        if let Some(levels) = levels {
            settings.ladder = Ladder::parse(&levels)?;
        }
        settings.check()?;
        Ok(RocketSource { settings: Arc::new(settings), intake: None, prefetch: None })
    }
}

#[async_trait]
impl Source for RocketSource {
    type Tag = RocketTag;

    fn capabilities(&self) -> SourceCapabilities {
        // A retry is a copy, so it never gives up by itself. What it counts are messages that came back to it, which no
        // crash adds to: not what a count of deliveries is for.
        SourceCapabilities::new(DelaySupport::UpTo(self.settings.ladder.longest()))
    }

    fn settler(&self) -> Arc<dyn Settle<RocketTag>> {
        Arc::new(Settler)
    }

    async fn receive(&mut self, room: usize) -> Result<Received<RocketTag>, SourceError> {
        let prefetch = *self.prefetch.get_or_insert(room);
        let batch = self.settings.batch;
        if prefetch.div_ceil(batch) > MOST_THREADS {
            let text = format!(
                "a prefetch of {prefetch} in batches of {batch} needs a thread for each batch, and {MOST_THREADS} is \
                 the most the client has: set a larger batch"
            );
            return Err(SourceError::new(SourceErrorKind::Fatal, text));
        }
        let intake = match &mut self.intake {
            Some(intake) => intake,
            // One try: the consumer waits between them, longer each time.
            none => none.insert(Intake::open(&self.settings, prefetch).await?),
        };
        Ok(Received::Deliveries(intake.next(room).await))
    }

    async fn close(&mut self) {
        if let Some(intake) = &self.intake {
            intake.close().await;
        }
    }
}
