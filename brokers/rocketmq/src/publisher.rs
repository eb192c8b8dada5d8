//! The publisher, which reports the known state of each message.
mod attempt;
mod delayed;
mod outbox;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use idempotent_mq::{OutboundMessage, PublishError, PublishErrorKind, Published, ServerUrl};
use rocketmq_client_rust::ClientError;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;
use tracing::warn;

use self::delayed::DueTime;
use crate::SettingError;
use crate::client::{ClientSettings, spawn_client};
use crate::delay_levels::DelayLevels;
use crate::message::encode;
use crate::producer::MessageProducer;
use crate::queue_choice::QueueChoice;
use crate::settings::check_name;

/// A publisher that waits until the broker has stored each message. Clones share one client, which starts when it is first
/// needed.
///
/// The publisher sends a message again under the same id if the broker does not respond. The topic may then contain the message
/// several times, and consumers detect the copies by their id.
///
/// ```no_run
/// use idempotent_mq::{OutboundMessage, PublishErrorKind};
/// use idempotent_rocketmq::RocketPublisher;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RocketPublisher::builder("rocketmq://localhost").build()?;
/// match publisher.publish(&OutboundMessage::new("payments:paid", "payment-17", r#"{"order":17}"#)).await {
///     Ok(published) => println!("stored at {:?}", published.position),
///     Err(error) if error.kind() == PublishErrorKind::Unconfirmed => println!("publish again with the same id"),
///     Err(error) => println!("not in the topic: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RocketPublisher(Arc<PublisherState>);

struct PublisherState {
    settings: ClientSettings,
    group: String,
    give_up_after: Duration,
    delay_levels: DelayLevels,
    max_lateness: Duration,
    client: Mutex<Option<RunningClient>>,
    /// Topics that were found, or that the broker creates on demand. The value is false if the topic must be checked again.
    known: std::sync::Mutex<HashMap<String, bool>>,
    /// Held by the task that checks whether a topic exists.
    checking: Mutex<()>,
    /// Counter that selects the queues of messages without an aggregate.
    next_queue: AtomicUsize,
}

/// A running client, which ends with the drop of this value.
struct RunningClient {
    producer: Arc<MessageProducer>,
    _end: oneshot::Sender<()>,
}

/// A builder for a [`RocketPublisher`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RocketPublisherBuilder {
    client: ClientSettings,
    group: String,
    give_up_after: Duration,
    delay_levels: Option<String>,
    max_lateness: Duration,
}

/// Maximum time of all attempts. With this limit, the end of each attempt is a representable time.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

impl RocketPublisherBuilder {
    /// Sets the producer group, which the broker's tools show.
    ///
    /// # Default
    /// `idempotent`
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// Sets the total time of all attempts of a [`publish`](RocketPublisher::publish), and of all messages in one call of
    /// [`Publish`](idempotent_mq::Publish). A single attempt takes up to 4 s.
    ///
    /// # Default
    /// 30 s. The maximum is a year.
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.give_up_after = time.min(MAX_TIME);
        self
    }

    /// Sets the delay levels of the broker, its setting `messageDelayLevel`. All brokers must have this setting: a broker with
    /// other levels delivers delayed messages at other times, and possibly early.
    ///
    /// # Default
    /// `1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h`
    pub fn delay_levels(mut self, levels: impl Into<String>) -> Self {
        self.delay_levels = Some(levels.into());
        self
    }

    /// Sets the time by which a delay may be lengthened to reach a delay level. The publisher refuses a delayed message if every
    /// sufficient level is longer than the delay and this time together.
    ///
    /// With at least the largest difference between two neighbouring levels (an hour for the default levels), the publisher accepts
    /// each delay up to the longest level. Only then does it accept [`deliver_at`](idempotent_mq::OutboundMessage::deliver_at) from an
    /// outbox.
    ///
    /// # Default
    /// 1 s
    pub fn max_lateness(mut self, time: Duration) -> Self {
        self.max_lateness = time;
        self
    }

    /// Builds the publisher, which connects at the first message.
    ///
    /// # Errors
    /// The URL, the group or the delay levels are invalid, or the certificates cannot be read.
    pub fn build(self) -> Result<RocketPublisher, SettingError> {
        let Self { client: settings, group, give_up_after, delay_levels, max_lateness } = self;
        settings.check()?;
        check_name("group", &group)?;
        let delay_levels =
            delay_levels.map_or_else(|| Ok(DelayLevels::default()), |levels| DelayLevels::parse(&levels))?;
        Ok(RocketPublisher(Arc::new(PublisherState {
            settings,
            group,
            give_up_after,
            delay_levels,
            max_lateness,
            client: Mutex::default(),
            known: std::sync::Mutex::default(),
            checking: Mutex::default(),
            next_queue: AtomicUsize::default(),
        })))
    }
}

impl RocketPublisher {
    /// Returns a builder for a publisher that connects by a URL of the [form](crate::URL_FORM) `rocketmq://HOST`.
    pub fn builder(server: impl Into<ServerUrl>) -> RocketPublisherBuilder {
        RocketPublisherBuilder {
            client: ClientSettings::new(&server.into()),
            group: "idempotent".to_owned(),
            give_up_after: Duration::from_secs(30),
            delay_levels: None,
            max_lateness: Duration::from_secs(1),
        }
    }

    /// Publishes a message and returns when the broker has stored the message as it is configured: flushed to disk, and
    /// replicated, if the broker is set so. While the broker is unreachable, does not respond, or has not stored the message in
    /// this way, the publisher sends the message again under the same id, with growing pauses.
    ///
    /// The topic is a topic of RocketMQ, or `TOPIC:TAG`. A message with an [`aggregate`](OutboundMessage::aggregate) is stored in the
    /// queue of the aggregate, and every other message in any queue. The result contains the position, unless the message is delayed.
    ///
    /// A message with [`deliver_at`](OutboundMessage::deliver_at) is delivered at this time by the clock of this process, or
    /// immediately if the time has passed, with the rules of [`publish_after`](Self::publish_after).
    ///
    /// # Errors
    /// The [`kind`](PublishError::kind) shows whether the message may be stored.
    ///
    /// # Cancellation
    /// The message may be published.
    pub async fn publish(&self, message: &OutboundMessage) -> Result<Published, PublishError> {
        let end = Instant::now() + self.0.give_up_after;
        self.publish_until(end, message, self.due_time(message)?).await
    }

    /// Publishes a message with attempts until `end`.
    async fn publish_until(
        &self,
        end: Instant,
        message: &OutboundMessage,
        due: Option<DueTime>,
    ) -> Result<Published, PublishError> {
        let mut prepared = encode(message)?;
        let mut may_be_stored = false;
        for retries in 0.. {
            let choice = match &message.aggregate {
                Some(aggregate) => QueueChoice::Hashed(aggregate.clone()),
                None => QueueChoice::Numbered(self.0.next_queue.fetch_add(1, Relaxed)),
            };
            if let Some(due) = &due {
                prepared.level = due.wait_for_level(&self.0.delay_levels).await.number;
            }
            let failed = match self.0.attempt(prepared.clone(), choice, end).await {
                // The broker reports the position in its queue for the delay.
                Ok(Some(position)) if prepared.level == 0 => {
                    return Ok(Published::at(position.position(&prepared.topic)));
                }
                Ok(_) => return Ok(Published::somewhere()),
                Err(failed) => failed,
            };
            may_be_stored |= failed.may_be_stored;
            // Without randomness, the pause has no jitter.
            let pause = delay(FIRST_PAUSE, MAX_PAUSE, retries, 20, OsEntropy.bits().unwrap_or_default());
            if failed.is_final || Instant::now() + pause >= end {
                return Err(failed.into_error(may_be_stored));
            }
            let cause = &*failed.text;
            warn!(target: "idempotent", topic = prepared.topic, retries, ?pause, cause, "publishing failed; retrying");
            tokio::time::sleep(pause).await;
        }
        Err(PublishError::new(PublishErrorKind::Unconfirmed, "too many attempts"))
    }
}

impl PublisherState {
    fn knows(&self, topic: &str) -> bool {
        self.known_topics().get(topic) == Some(&true)
    }

    fn known_topics(&self) -> MutexGuard<'_, HashMap<String, bool>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shared producer, and starts the client for the first call.
    async fn producer(&self) -> Result<Arc<MessageProducer>, ClientError> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.producer.clone());
        }
        let ((ready, started), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let (settings, group) = (self.settings.clone(), self.group.clone());
        spawn_client(0, move |runtime| async move {
            match MessageProducer::start(&runtime, &settings, &group).await {
                Ok(producer) => {
                    let producer = Arc::new(producer);
                    if ready.send(Ok(producer.clone())).is_ok() {
                        // The channel carries no value and ends with the drop of its sender.
                        let _: Result<(), _> = ended.await;
                    }
                    producer.shut_down().await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        let producer = started.await.unwrap_or_else(|_| Err(ClientError::not_started()))?;
        Ok(client.insert(RunningClient { producer, _end: end }).producer.clone())
    }
}

impl fmt::Debug for RocketPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocketPublisher").field("name_servers", &self.0.settings.name_servers).finish_non_exhaustive()
    }
}
