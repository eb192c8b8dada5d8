//! The source.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::SystemClock;
use idempotent_mq::{DelaySupport, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::ladder::LONGEST;
use crate::marks::End;
use crate::session::{Intake, RabbitTag, connected, declared};
use crate::settings::Settings;
use crate::settle::Settler;
use crate::{Queue, SettingError, address::Address};

/// A queue of RabbitMQ, as a source of deliveries. The [crate's docs](crate) say what it declares and what it cannot do.
#[derive(Debug)]
pub struct RabbitSource {
    settings: Arc<Settings>,
    intake: Option<Intake>,
    /// Under way, also while nobody waits for it: half of it dropped could leave a subscription that nobody reads.
    opening: Option<JoinHandle<Result<Intake, SourceError>>>,
    /// What the consumer may hold at most: the first room it told.
    prefetch: Option<usize>,
    clock: SystemClock,
}

/// Sets up a [`RabbitSource`].
#[derive(Debug)]
#[must_use]
pub struct RabbitSourceBuilder {
    address: Result<Address, SettingError>,
    queue: Queue,
    consumer_tag: String,
    end: End,
}

impl RabbitSource {
    /// A source of this queue. The URL is `amqp://USER:PASSWORD@HOST:PORT/VHOST`, with `?heartbeat=SECONDS`; `amqps://`
    /// with the feature `tls`.
    pub fn builder(url: &str, queue: Queue) -> RabbitSourceBuilder {
        let address = Address::parse(url);
        RabbitSourceBuilder { address, queue, consumer_tag: String::new(), end: End::default() }
    }

    /// Makes sure now that the queue and that of its dead letters are there, which is otherwise done when the consumer
    /// begins: so that who publishes to it does not come too early.
    ///
    /// # Errors
    /// As of [`receive`](Source::receive); it is tried once.
    ///
    /// # Cancellation
    /// They may have been declared.
    pub async fn declare(&self) -> Result<(), SourceError> {
        let connection = connected(&self.settings).await?;
        declared(&self.settings, &connection).await.map(drop)
    }
}

impl RabbitSourceBuilder {
    /// How the subscription is named at the broker.
    ///
    /// # Default
    /// One that the broker makes
    pub fn consumer_tag(mut self, tag: impl Into<String>) -> Self {
        self.consumer_tag = tag.into();
        self
    }

    /// The header that says when a message is of no use any more: a timestamp of AMQP's, or a number of ms since 1970.
    /// A message that is older is acknowledged without being run.
    ///
    /// # Default
    /// None: only the property `expiration` counts
    pub fn expires_at_header(mut self, name: impl Into<String>) -> Self {
        self.end.header = Some(name.into());
        self
    }

    /// The property `expiration` counts from the property `timestamp`. Only where every producer sets that to the time it
    /// publishes: with the time of what the message is about, messages would be dropped unread.
    ///
    /// # Default
    /// It counts from the first delivery, the latest time it can be
    pub fn expires_by_timestamp(mut self) -> Self {
        self.end.by_timestamp = true;
        self
    }

    /// The source. It connects when it is first asked for deliveries.
    ///
    /// # Errors
    /// A URL that cannot be read, a name that is too long, settings that do not fit each other.
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
        // A retry is a copy, so nothing that the broker counts runs out by retries: it never gives up because of them.
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
            // One try: the consumer waits between them, longer each time.
            none => {
                let settings = self.settings.clone();
                let open = || tokio::spawn(async move { Intake::open(&settings, prefetch).await });
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
    SourceError::new(SourceErrorKind::Transient, "the runtime that was to connect is shutting down")
}
