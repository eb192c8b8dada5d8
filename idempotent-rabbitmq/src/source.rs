//! The source.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::SystemClock;
use idempotent_mq::{DelaySupport, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::delay_levels::LONGEST;
use crate::retry_headers::ExpirySource;
use crate::session::{RabbitTag, Subscription, connected, declared};
use crate::settings::Settings;
use crate::settler::Settler;
use crate::{Queue, SettingError, broker_address::BrokerAddress};

/// A source of the deliveries of a RabbitMQ queue. The [crate documentation](crate) lists the declared queues and the
/// limits.
#[derive(Debug)]
pub struct RabbitSource {
    settings: Arc<Settings>,
    intake: Option<Subscription>,
    /// The connection attempt. It continues while no caller waits, because an attempt that is dropped halfway could
    /// leave a subscription without a reader.
    opening: Option<JoinHandle<Result<Subscription, SourceError>>>,
    /// The prefetch: the first room that the consumer asked for.
    prefetch: Option<usize>,
    clock: SystemClock,
}

/// A builder for a [`RabbitSource`].
#[derive(Debug)]
#[must_use]
pub struct RabbitSourceBuilder {
    address: Result<BrokerAddress, SettingError>,
    queue: Queue,
    consumer_tag: String,
    end: ExpirySource,
}

impl RabbitSource {
    /// Returns a builder for a source of this queue. The URL is `amqp://USER:PASSWORD@HOST:PORT/VHOST`, optionally
    /// with `?heartbeat=SECONDS`. `amqps://` requires the feature `tls`.
    pub fn builder(url: &str, queue: Queue) -> RabbitSourceBuilder {
        let address = BrokerAddress::parse(url);
        RabbitSourceBuilder { address, queue, consumer_tag: String::new(), end: ExpirySource::default() }
    }

    /// Declares the queue and the queue of its dead letters now instead of at the consumer's start. Call this method
    /// before a producer publishes to the queue.
    ///
    /// # Errors
    /// Same as [`receive`](Source::receive). The source tries once.
    ///
    /// # Cancellation
    /// The queues may have been declared.
    pub async fn declare(&self) -> Result<(), SourceError> {
        let connection = connected(&self.settings).await?;
        declared(&self.settings, &connection).await.map(drop)
    }
}

impl RabbitSourceBuilder {
    /// Sets the name of the subscription at the broker.
    ///
    /// # Default
    /// A name that the broker creates
    pub fn consumer_tag(mut self, tag: impl Into<String>) -> Self {
        self.consumer_tag = tag.into();
        self
    }

    /// Sets the header that contains the end of a message's validity: an AMQP timestamp, or a number of ms since 1970.
    /// The consumer acknowledges an expired message without a run.
    ///
    /// # Default
    /// None: only the property `expiration` is used
    pub fn expires_at_header(mut self, name: impl Into<String>) -> Self {
        self.end.header = Some(name.into());
        self
    }

    /// Counts the property `expiration` from the property `timestamp`. Use it only if every producer sets `timestamp`
    /// to the time of publication. Otherwise, messages could be dropped unread.
    ///
    /// # Default
    /// `expiration` counts from the first delivery, which is the latest possible end
    pub fn expires_by_timestamp(mut self) -> Self {
        self.end.by_timestamp = true;
        self
    }

    /// Builds the source. The source connects when the consumer first asks for deliveries.
    ///
    /// # Errors
    /// The URL is invalid, a name is too long, or settings contradict each other.
    pub fn build(self) -> Result<RabbitSource, SettingError> {
        let Self { address, queue, consumer_tag, end } = self;
        queue.check()?;
        if consumer_tag.len() > 255 {
            return Err(SettingError::new("the consumer tag has more than 255 bytes"));
        }
        let place = queue.name.as_str().into();
        let settings = Settings { address: address?, queue, place, consumer_tag, end };
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
        // A retry is a copy, so retries do not increase the broker's delivery count, and the broker never gives a
        // message up because of them.
        let capabilities = SourceCapabilities::new(DelaySupport::UpTo(LONGEST));
        if self.settings.queue.counts() { capabilities.counts() } else { capabilities }
    }

    fn settler(&self) -> Arc<dyn Settle<RabbitTag>> {
        Arc::new(Settler)
    }

    async fn receive(&mut self, room: usize) -> Result<Received<RabbitTag>, SourceError> {
        let prefetch = *self.prefetch.get_or_insert(room);
        let intake = match &mut self.intake {
            Some(intake) => intake,
            // One attempt: the consumer waits between attempts, longer each time.
            none => {
                let settings = self.settings.clone();
                let open = || tokio::spawn(async move { Subscription::open(&settings, prefetch).await });
                let opened = self.opening.get_or_insert_with(open).await;
                self.opening = None;
                let opened = opened.unwrap_or_else(|_| Err(stopped()))?;
                info!(target: "idempotent", broker = %self.settings.address, queue = self.settings.queue.name, "connected");
                none.insert(opened)
            }
        };
        if let Some(deliveries) = intake.next(room, &self.clock).await {
            return Ok(Received::Deliveries(deliveries));
        }
        self.intake = None;
        warn!(target: "idempotent", broker = %self.settings.address, queue = self.settings.queue.name, "channel lost");
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

fn stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "cannot connect: the tokio runtime is shutting down")
}
