//! The source, which consumes a queue.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::SystemClock;
use idempotent_mq::{DelaySupport, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::broker_url::BrokerUrl;
use crate::intake::SessionIntake;
use crate::properties::MAX_SHORT_STRING;
use crate::retry_headers::ExpirySettings;
use crate::retry_levels::MAX_DELAY;
use crate::session::{connect, declare_queues};
use crate::settings::SourceSettings;
use crate::settler::{RabbitSettler, RabbitTag};
use crate::{Queue, SettingError};

/// A source that consumes a queue of RabbitMQ. The [crate documentation](crate) has an example, and lists the queues
/// and limits of a source.
#[derive(Debug)]
pub struct RabbitSource {
    settings: Arc<SourceSettings>,
    intake: Option<SessionIntake>,
    /// The task that opens a session. The task outlives a cancelled `receive`, which could otherwise leave a
    /// subscription without a reader.
    opening: Option<JoinHandle<Result<SessionIntake, SourceError>>>,
    /// Maximum number of deliveries that the consumer holds: the room of the first `receive`.
    prefetch: Option<usize>,
    clock: SystemClock,
}

/// A builder for a [`RabbitSource`].
#[derive(Debug)]
#[must_use]
pub struct RabbitSourceBuilder {
    url: Result<BrokerUrl, SettingError>,
    queue: Queue,
    consumer_tag: String,
    expiry: ExpirySettings,
}

impl RabbitSource {
    /// Returns a builder for a source that consumes this queue. The URL has the form
    /// `amqp://USER:PASSWORD@HOST:PORT/VHOST`, and may end with `?heartbeat=SECONDS`. URLs that begin with `amqps://`
    /// need the feature `tls`.
    pub fn builder(url: &str, queue: Queue) -> RabbitSourceBuilder {
        RabbitSourceBuilder {
            url: BrokerUrl::parse(url),
            queue,
            consumer_tag: String::new(),
            expiry: ExpirySettings::default(),
        }
    }

    /// Connects to the broker with the default settings, and declares the queue and its dead letter queue.
    ///
    /// A source of the [builder](Self::builder) connects at the first [`receive`](Source::receive) instead, and waits
    /// for a broker that is unreachable.
    ///
    /// # Errors
    /// - `Fatal`: the URL or a name is invalid, access is denied, or the queue exists with other settings.
    /// - `Transient`: the broker cannot be reached.
    ///
    /// # Cancellation
    /// Some of the queues may be declared.
    pub async fn connect(url: &str, queue: Queue) -> Result<Self, SourceError> {
        let source = Self::builder(url, queue).build()?;
        source.declare().await?;
        Ok(source)
    }

    /// Declares the queue and its dead letter queue. A consumer does the same at its start, which may be too late for a
    /// publisher that needs the queue.
    ///
    /// # Errors
    /// The errors of [`receive`](Source::receive). There is a single attempt.
    ///
    /// # Cancellation
    /// Some of the queues may be declared.
    pub async fn declare(&self) -> Result<(), SourceError> {
        let connection = connect(&self.settings).await?;
        declare_queues(&self.settings, &connection).await.map(drop)
    }
}

impl RabbitSourceBuilder {
    /// Sets the name of the subscription, which the broker's tools show.
    ///
    /// # Default
    /// A name that the broker generates
    pub fn consumer_tag(mut self, tag: impl Into<String>) -> Self {
        self.consumer_tag = tag.into();
        self
    }

    /// Sets the header with a message's expiry time, an AMQP timestamp or a number of ms since 1970. Expired messages
    /// are acknowledged without a run.
    ///
    /// # Default
    /// None: only the property `expiration` is used
    pub fn expires_at_header(mut self, name: impl Into<String>) -> Self {
        self.expiry.header = Some(name.into());
        self
    }

    /// Counts the property `expiration` from the property `timestamp`. Use this only if all producers set `timestamp`
    /// to the time of publishing: with the time of an earlier event, messages would expire too early and be dropped
    /// without a run.
    ///
    /// # Default
    /// `expiration` counts from the first delivery, which is not earlier than the arrival at the broker
    pub fn expires_by_timestamp(mut self) -> Self {
        self.expiry.by_timestamp = true;
        self
    }

    /// Builds the source, which connects at the first [`receive`](Source::receive).
    ///
    /// # Errors
    /// The URL or a name is invalid, or settings contradict each other.
    pub fn build(self) -> Result<RabbitSource, SettingError> {
        let Self { url, queue, consumer_tag, expiry } = self;
        queue.check()?;
        if consumer_tag.len() > MAX_SHORT_STRING {
            let text = format!("consumer_tag: too long; use at most {MAX_SHORT_STRING} bytes");
            return Err(SettingError::new(text));
        }
        let queue_name = queue.name.as_str().into();
        let settings = SourceSettings { url: url?, queue, queue_name, consumer_tag, expiry };
        Ok(RabbitSource {
            settings: Arc::new(settings),
            intake: None,
            opening: None,
            prefetch: None,
            clock: SystemClock::new(),
        })
    }
}

#[async_trait]
impl Source for RabbitSource {
    type Tag = RabbitTag;

    fn capabilities(&self) -> SourceCapabilities {
        // Retries are copies, so retries never reach a delivery limit of the broker.
        let capabilities = SourceCapabilities::new(DelaySupport::UpTo(MAX_DELAY));
        if self.settings.queue.counts_deliveries() { capabilities.counts() } else { capabilities }
    }

    fn settler(&self) -> Arc<dyn Settle<RabbitTag>> {
        Arc::new(RabbitSettler)
    }

    async fn receive(&mut self, room: usize) -> Result<Received<RabbitTag>, SourceError> {
        let prefetch = *self.prefetch.get_or_insert(room);
        let intake = match &mut self.intake {
            Some(intake) => intake,
            // After an error the consumer calls again, with growing pauses.
            none => {
                let settings = self.settings.clone();
                let open = || tokio::spawn(async move { SessionIntake::open(&settings, prefetch).await });
                let opened = self.opening.get_or_insert_with(open).await;
                self.opening = None;
                let opened = opened.unwrap_or_else(|_| Err(runtime_stopped()))?;
                info!(target: "idempotent", broker = %self.settings.url, queue = self.settings.queue.name, "consuming started");
                none.insert(opened)
            }
        };
        if let Some(deliveries) = intake.next(room, &self.clock).await {
            return Ok(Received::Deliveries(deliveries));
        }
        self.intake = None;
        warn!(target: "idempotent", broker = %self.settings.url, queue = self.settings.queue.name, "channel closed; reconnecting");
        Ok(Received::Revoked(vec![self.settings.position()]))
    }

    async fn close(&mut self) {
        if let Some(opening) = self.opening.take()
            && let Ok(Ok(opened)) = opening.await
        {
            self.intake = Some(opened);
        }
        if let Some(intake) = &mut self.intake {
            intake.close().await;
        }
    }
}

fn runtime_stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "connecting: the task was stopped, since its runtime is shutting down")
}
