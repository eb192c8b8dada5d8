//! The publisher, which reports the known state of each message.
mod attempt;
mod batch;
mod blocked;
mod delayed;
mod due_time;
mod outbox;
mod outcome;
mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use idempotent_mq::{OutboundMessage, PublishError, Published};
use tokio::time::Instant;
use tracing::warn;

use self::attempt::PreparedMessage;
use self::delayed::check_expiry;
use self::due_time::DueTime;
use self::outcome::KnownState;
use self::state::PublisherState;
use crate::message::EncodedMessage;
use crate::options::{BrokerUrl, Server};
use crate::shared_connection::SharedConnection;
use crate::{DelayTopology, RabbitProperties, SettingError};

/// A publisher that waits until the broker has confirmed each message. Clones share one connection, which opens at the
/// first message and again after a failure.
///
/// The publisher sends a message again under the same id if the broker does not confirm in time. A queue may then
/// contain the message several times, and consumers detect the copies by their id.
///
/// ```no_run
/// use idempotent_mq::{OutboundMessage, PublishErrorKind};
/// use idempotent_rabbitmq::{RabbitPublisher, Route};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RabbitPublisher::builder("amqp://guest:guest@localhost/%2f").build()?;
/// let paid = OutboundMessage::new(Route::exchange("payments", "paid"), "payment-17", r#"{"order":17}"#);
/// match publisher.publish(&paid).await {
///     Ok(_) => println!("in a queue"),
///     Err(error) if error.kind() == PublishErrorKind::Unconfirmed => println!("publish again with the same id"),
///     Err(error) => println!("not in any queue: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RabbitPublisher(Arc<PublisherState>);

/// A builder for a [`RabbitPublisher`].
#[derive(Debug)]
#[must_use]
pub struct RabbitPublisherBuilder {
    url: Result<BrokerUrl, SettingError>,
    in_flight: usize,
    confirm_within: Duration,
    give_up_after: Duration,
    delays: DelayTopology,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The broker's default limit of channels on a connection.
const MAX_IN_FLIGHT: usize = 2047;
/// Maximum time of all attempts. With this limit, the end of each attempt is a representable time.
const MAX_TIME: Duration = Duration::from_secs(24 * 3_600);

impl RabbitPublisherBuilder {
    /// Sets the maximum number of channels in use. [`publish`](RabbitPublisher::publish) uses one channel for each
    /// message, and waits for a free one. Messages of an outbox share channels, up to 128 on each.
    ///
    /// # Default
    /// 32
    pub fn in_flight(mut self, messages: usize) -> Self {
        self.in_flight = messages;
        self
    }

    /// Sets the time to wait for a confirm before the message is sent again over a new connection.
    ///
    /// # Default
    /// 5 s
    pub fn confirm_within(mut self, time: Duration) -> Self {
        self.confirm_within = time;
        self
    }

    /// Sets the total time of all attempts of a [`publish`](RabbitPublisher::publish), and of all messages in one call
    /// of [`Publish`](idempotent_mq::Publish).
    ///
    /// # Default
    /// 30 s. The maximum is a day.
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.give_up_after = time;
        self
    }

    /// Sets the means by which the broker delays messages.
    ///
    /// # Default
    /// [`DelayTopology::quorum`]
    pub fn delays(mut self, delays: DelayTopology) -> Self {
        self.delays = delays;
        self
    }

    /// Builds the publisher, which connects at the first message.
    ///
    /// # Errors
    /// The URL or a limit is invalid.
    pub fn build(self) -> Result<RabbitPublisher, SettingError> {
        let Self { url, in_flight, confirm_within, give_up_after, delays } = self;
        if in_flight == 0 || in_flight > MAX_IN_FLIGHT {
            let text = format!("in_flight: {in_flight} is out of range; choose 1 to {MAX_IN_FLIGHT}");
            return Err(SettingError::new(text));
        }
        if confirm_within.is_zero() {
            return Err(SettingError::new("confirm_within: zero leaves no time for a confirm; choose a longer time"));
        }
        if give_up_after < confirm_within {
            return Err(SettingError::new("give_up_after: shorter than confirm_within; choose a longer time"));
        }
        if give_up_after > MAX_TIME {
            let text = format!(
                "give_up_after: {give_up_after:?} is more than the maximum of a day; choose a shorter time, and publish \
                 again after an error"
            );
            return Err(SettingError::new(text));
        }
        let connection = SharedConnection::new(url?, "idempotent: publisher".to_owned(), in_flight);
        let state = PublisherState::new(connection, in_flight, confirm_within, give_up_after, delays);
        Ok(RabbitPublisher(Arc::new(state)))
    }
}

impl RabbitPublisher {
    /// Returns a builder for a publisher to this broker. The URL has the same form as for
    /// [`RabbitSource::builder`](crate::RabbitSource::builder).
    pub fn builder(server: impl Into<Server>) -> RabbitPublisherBuilder {
        RabbitPublisherBuilder {
            url: BrokerUrl::of(server.into()),
            in_flight: 32,
            confirm_within: Duration::from_secs(5),
            give_up_after: Duration::from_secs(30),
            delays: DelayTopology::quorum(),
        }
    }

    /// Publishes a message and returns when the broker has confirmed that at least one queue has stored the message.
    /// While the broker is unreachable, does not confirm, or rejects the message for now, the publisher sends the
    /// message again under the same id, with growing pauses. The same applies while the node of the queue is down.
    ///
    /// The topic is a queue, or `EXCHANGE/ROUTING KEY`, and a [`Route`](crate::Route) converts to it. A message with
    /// [`deliver_at`](OutboundMessage::deliver_at) is delivered at this time by the clock of this process, or
    /// immediately if the time has passed, with the rules of [`publish_after`](Self::publish_after). For AMQP's own
    /// properties, see [`publish_with`](Self::publish_with).
    ///
    /// # Errors
    /// The [`kind`](PublishError::kind) shows whether the message may be in a queue. A message that no queue is bound
    /// for is [`Refused`](idempotent_mq::PublishErrorKind::Refused). A message to a queue whose node is down is
    /// [`Unsent`](idempotent_mq::PublishErrorKind::Unsent). RabbitMQ 3 shows this difference only if the topic is a
    /// queue: a message to an exchange whose queues are all down is refused.
    ///
    /// # Cancellation
    /// The message may be published, unless the call was waiting for a free channel.
    pub async fn publish(&self, message: &OutboundMessage) -> Result<Published, PublishError> {
        self.publish_with(message, &RabbitProperties::default()).await
    }

    /// Publishes a message like [`publish`](Self::publish), with properties that only AMQP has.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    ///
    /// # Cancellation
    /// See [`publish`](Self::publish).
    pub async fn publish_with(
        &self,
        message: &OutboundMessage,
        properties: &RabbitProperties,
    ) -> Result<Published, PublishError> {
        self.publish_encoded(EncodedMessage::new(message, properties)?, self.due_time(message)?).await
    }

    async fn publish_encoded(
        &self,
        message: EncodedMessage<'_>,
        due: Option<DueTime>,
    ) -> Result<Published, PublishError> {
        // The time of all attempts starts with the permit.
        let _permit = self.0.permits.acquire().await;
        self.publish_until(KnownState::default(), &message, due, Instant::now() + self.0.give_up_after).await
    }

    /// Publishes a message of an outbox, with attempts until `end`. The caller holds a permit.
    async fn publish_outbound(
        &self,
        known: KnownState,
        message: &OutboundMessage,
        end: Instant,
    ) -> Result<Published, PublishError> {
        let encoded = EncodedMessage::new(message, &RabbitProperties::default())?;
        self.publish_until(known, &encoded, self.due_time(message)?, end).await
    }

    /// Publishes a message, with attempts until `end`. `known` is the state after earlier attempts. The caller holds a
    /// permit.
    async fn publish_until(
        &self,
        mut known: KnownState,
        message: &EncodedMessage<'_>,
        due: Option<DueTime>,
        end: Instant,
    ) -> Result<Published, PublishError> {
        check_expiry(message, due.as_ref())?;
        if known.has_attempts() {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
        for retries in 0.. {
            // The remaining delay is shorter with each attempt.
            let path = due.as_ref().and_then(|due| due.path(&self.0.delays, &message.to));
            let prepared = PreparedMessage { path: path.as_ref(), message };
            if let Some(result) = known.add(self.0.attempt(&prepared, end).await) {
                if result.is_ok() && path.is_none() {
                    self.0.prove(&message.to.exchange);
                }
                return result.map(|()| Published::somewhere());
            }
            // Without randomness, the pause has no jitter.
            let pause = delay(FIRST_PAUSE, MAX_PAUSE, retries, 20, OsEntropy.bits().unwrap_or_default());
            if Instant::now() + pause >= end {
                break;
            }
            let cause = known.last_text();
            warn!(target: "idempotent", broker = %self.0.connection.url, retries, ?pause, cause, "publishing failed; retrying");
            tokio::time::sleep(pause).await;
        }
        Err(known.into_error())
    }
}

impl fmt::Debug for RabbitPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitPublisher").field("broker", &self.0.connection.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_at_its_limit_is_accepted_and_one_above_it_is_refused() {
        let built = |in_flight, confirm_within, give_up_after| {
            let builder = RabbitPublisher::builder("amqp://broker").in_flight(in_flight);
            builder.confirm_within(confirm_within).give_up_after(give_up_after).build()
        };
        let (second, least) = (Duration::from_secs(1), Duration::from_nanos(1));
        assert!(built(MAX_IN_FLIGHT, MAX_TIME, MAX_TIME).is_ok() && built(1, least, least).is_ok());
        for (setting, built) in [
            ("in_flight", built(0, second, second)),
            ("in_flight", built(MAX_IN_FLIGHT + 1, second, second)),
            ("confirm_within", built(1, Duration::ZERO, second)),
            ("give_up_after", built(1, second, second - least)),
            ("give_up_after", built(1, second, MAX_TIME + least)),
        ] {
            let text = built.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains(setting), "{setting}: {text}");
        }
    }
}
