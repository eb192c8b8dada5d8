//! The source, which consumes a queue.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::SystemClock;
use idempotent_mq::{DelaySupport, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::carrier::ExpirySettings;
use crate::caution::Caution;
use crate::copies::CopyStore;
use crate::intake::SessionIntake;
use crate::options::{BrokerUrl, Server};
use crate::properties::MAX_SHORT_STRING;
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
    copies: Arc<CopyStore>,
    intake: Option<SessionIntake>,
    /// The task that opens a session. The task outlives a cancelled `receive`, which could otherwise leave a
    /// subscription without a reader.
    opening: Option<JoinHandle<Result<SessionIntake, SourceError>>>,
    /// Maximum number of deliveries that the consumer holds: the room of the first `receive`.
    prefetch: Option<usize>,
    caution: Caution,
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
    pub fn builder(server: impl Into<Server>, queue: Queue) -> RabbitSourceBuilder {
        RabbitSourceBuilder {
            url: BrokerUrl::of(server.into()),
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
    pub async fn connect(server: impl Into<Server>, queue: Queue) -> Result<Self, SourceError> {
        let source = Self::builder(server, queue).build()?;
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

impl RabbitSource {
    /// Returns the open session, or opens one.
    async fn opened(&mut self, prefetch: usize) -> Result<&mut SessionIntake, SourceError> {
        match &mut self.intake {
            Some(intake) => Ok(intake),
            // After an error the consumer calls again, with growing pauses.
            none => {
                let (copies, settings) = (self.copies.clone(), self.settings.clone());
                let limit = self.caution.limit(prefetch);
                let open = || tokio::spawn(SessionIntake::open(copies, settings, limit));
                let opened = self.opening.get_or_insert_with(open).await;
                self.opening = None;
                let opened = opened.unwrap_or_else(|_| Err(runtime_stopped()))?;
                let (broker, queue) = (&self.settings.url, &self.settings.queue.name);
                info!(target: "idempotent", %broker, queue, prefetch = limit, "consuming started");
                Ok(none.insert(opened))
            }
        }
    }

    /// Ends the session. The consumer pauses after an error, so a session that ended before a delivery was settled is an
    /// error, unless deliveries must be revoked.
    fn ended(&mut self, cause: Option<lapin::Error>) -> Result<Received<RabbitTag>, SourceError> {
        let (settled, is_held) =
            self.intake.take().map_or((0, false), |intake| (intake.settled(), intake.holds_more_than(0)));
        let (broker, queue) = (&self.settings.url, &self.settings.queue.name);
        let vain = self.caution.note_end(settled);
        let error = vain.map(|sessions| unsettled_session(queue, sessions, cause));
        match error {
            Some(error) if !is_held => Err(error),
            error => {
                let error = error.as_ref().map(|error| error as &(dyn std::error::Error + 'static));
                warn!(target: "idempotent", %broker, queue, error, "channel closed; reconnecting");
                Ok(Received::Revoked(vec![self.settings.position()]))
            }
        }
    }
}

/// Returns the error for a session that ended before a delivery was settled.
fn unsettled_session(queue: &str, sessions: u32, cause: Option<lapin::Error>) -> SourceError {
    let text = format!(
        "receiving: {sessions} sessions in a row on the queue `{queue}` ended before a message was settled; if the client \
         cannot read the next message of the queue, remove that message with another client, as the handbook describes"
    );
    let error = SourceError::new(SourceErrorKind::Transient, text);
    match cause {
        Some(cause) => error.with_cause(cause),
        None => error,
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
        let settings = Arc::new(SourceSettings { url: url?, queue, queue_name, consumer_tag, expiry });
        Ok(RabbitSource {
            copies: Arc::new(CopyStore::new(settings.clone())),
            settings,
            intake: None,
            opening: None,
            prefetch: None,
            caution: Caution::default(),
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
        let (prefetch, clock) = (*self.prefetch.get_or_insert(room), self.clock.clone());
        loop {
            let intake = self.opened(prefetch).await?;
            let deliveries = match intake.next(room, &clock).await {
                Ok(deliveries) => deliveries,
                Err(cause) => return self.ended(cause),
            };
            let (settled, is_more) = (intake.settled(), intake.holds_more_than(deliveries.len()));
            if is_more || !self.caution.ends_after(settled, prefetch) {
                return Ok(Received::Deliveries(deliveries));
            }
            // The prefetch limit of a subscription is fixed. The next session gets these deliveries again.
            drop(deliveries);
            self.intake = None;
        }
    }

    async fn close(&mut self) {
        if let Some(opening) = self.opening.take()
            && let Ok(Ok(opened)) = opening.await
        {
            self.intake = Some(opened);
        }
        if let Some(intake) = self.intake.take() {
            intake.close().await;
        }
    }
}

fn runtime_stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "connecting: the task was stopped, since its runtime is shutting down")
}
