//! A publisher with confirms.
mod attempt;
mod batch;
mod connection;
mod delayed;
mod error;
mod outbox;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use self::attempt::PublishState;
use self::connection::SharedConnection;
use self::delayed::DeliveryTime;
pub use self::error::{PublishError, PublishErrorKind};
use crate::broker_address::BrokerAddress;
use crate::message::LONGEST;
use crate::{DelayTopology, RabbitMessage, Route, SettingError};

/// A publisher that waits for the broker's confirms. Clones are cheap and share one connection. The connection is
/// opened on first use, and again after it breaks.
///
/// If a confirm does not arrive in time, the publisher sends the message again under the same id. The message may then
/// be in a queue several times: consumers deduplicate the copies by their id.
///
/// ```no_run
/// use idempotent_rabbitmq::{RabbitMessage, PublishErrorKind, RabbitPublisher, Route};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RabbitPublisher::builder("amqp://guest:guest@localhost/%2f").build()?;
/// let paid = RabbitMessage::new("payment-17", r#"{"order":17}"#).content_type("application/json");
/// match publisher.publish(&Route::exchange("payments", "paid"), &paid).await {
///     Ok(()) => println!("published"),
///     Err(error) if error.kind() == PublishErrorKind::Unconfirmed => println!("state unknown: publish it again, with the same id"),
///     Err(error) => println!("not in any queue: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RabbitPublisher(Arc<PublisherInner>);

struct PublisherInner {
    connection: SharedConnection,
    places: Semaphore,
    confirm_within: Duration,
    give_up_after: Duration,
    delays: DelayTopology,
    /// Exchanges that have accepted a message. Further messages to them may share a channel.
    proven: Mutex<HashSet<String>>,
}

/// A builder for a [`RabbitPublisher`].
#[derive(Debug)]
#[must_use]
pub struct RabbitPublisherBuilder {
    address: Result<BrokerAddress, SettingError>,
    in_flight: usize,
    confirm_within: Duration,
    give_up_after: Duration,
    delays: DelayTopology,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The default limit of a broker for the channels of one connection.
const MOST_IN_FLIGHT: usize = 2047;
const MOST_PROVEN: usize = 1_000;
const LONGEST_TRY: Duration = Duration::from_secs(24 * 3_600);

impl RabbitPublisherBuilder {
    /// Sets the maximum number of channels in use. [`publish`](RabbitPublisher::publish) waits for a free channel and
    /// uses it alone. Messages of an outbox share channels, up to 128 messages on each.
    ///
    /// # Default
    /// 32
    pub fn in_flight(mut self, messages: usize) -> Self {
        self.in_flight = messages;
        self
    }

    /// Sets how long to wait for a confirm before the message is sent again on another connection.
    ///
    /// # Default
    /// 5 s
    pub fn confirm_within(mut self, time: Duration) -> Self {
        self.confirm_within = time;
        self
    }

    /// Sets how long [`publish`](RabbitPublisher::publish) retries, at most a day.
    ///
    /// # Default
    /// 30 s
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.give_up_after = time;
        self
    }

    /// Sets the method by which the broker delays messages.
    ///
    /// # Default
    /// [`DelayTopology::quorum`]
    pub fn delays(mut self, delays: DelayTopology) -> Self {
        self.delays = delays;
        self
    }

    /// Builds the publisher.
    ///
    /// # Errors
    /// The URL is invalid, or a limit is zero or too large.
    pub fn build(self) -> Result<RabbitPublisher, SettingError> {
        let Self { address, in_flight, confirm_within, give_up_after, delays } = self;
        if in_flight == 0 || in_flight > MOST_IN_FLIGHT {
            return Err(SettingError::new(format!("in_flight is {in_flight}, it must be 1 to {MOST_IN_FLIGHT}")));
        }
        if confirm_within.is_zero() || give_up_after < confirm_within {
            return Err(SettingError::new("give_up_after must not be below confirm_within, nor that be zero"));
        }
        if give_up_after > LONGEST_TRY {
            let text =
                format!("give_up_after is {give_up_after:?}, it must not be above a day: publish again after that");
            return Err(SettingError::new(text));
        }
        Ok(RabbitPublisher(Arc::new(PublisherInner {
            connection: SharedConnection::new(address?, in_flight),
            places: Semaphore::new(in_flight),
            confirm_within,
            give_up_after,
            delays,
            proven: Mutex::default(),
        })))
    }
}

impl RabbitPublisher {
    /// Returns a builder for a publisher to this broker. The URL has the form of
    /// [`RabbitSource::builder`](crate::RabbitSource::builder).
    pub fn builder(url: &str) -> RabbitPublisherBuilder {
        RabbitPublisherBuilder {
            address: BrokerAddress::parse(url),
            in_flight: 32,
            confirm_within: Duration::from_secs(5),
            give_up_after: Duration::from_secs(30),
            delays: DelayTopology::quorum(),
        }
    }

    /// Publishes a message, and returns after the broker has confirmed that the message is in at least one queue.
    /// While the broker is unreachable, does not confirm or refuses the message temporarily, the publisher sends it
    /// again under the same id, with growing pauses.
    ///
    /// # Errors
    /// By its [`kind`](PublishError::kind), the message is in no queue, or its state is unknown.
    ///
    /// # Cancellation
    /// The state of the message is unknown, unless the call still waited for a channel.
    pub async fn publish(&self, to: &Route, message: &RabbitMessage) -> Result<(), PublishError> {
        // The time limit begins when the call has a channel.
        let _place = self.0.places.acquire().await;
        self.publish_from(PublishState::default(), to, message, None, Instant::now() + self.0.give_up_after).await
    }

    /// Publishes a message with the results of earlier tries. The caller holds a place.
    async fn publish_from(
        &self,
        mut known: PublishState,
        to: &Route,
        message: &RabbitMessage,
        due: Option<DeliveryTime>,
        end: Instant,
    ) -> Result<(), PublishError> {
        let properties = message.properties().filter(|_| to.exchange.len() <= LONGEST && to.key.len() <= LONGEST);
        let Some(properties) = properties else {
            return Err(PublishError::refused("an id, a header's name or the route is longer than 255 bytes"));
        };
        if known.is_some() {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
        for tries in 1.. {
            // Each try uses the remaining delay.
            let path = due.as_ref().and_then(|due| due.path(&self.0.delays, to));
            let cause =
                match known.learn(self.0.attempt_twice(to, path.as_ref(), &properties, message.body(), end).await) {
                    Some(answer) => {
                        if answer.is_ok() && path.is_none() {
                            self.0.prove(&to.exchange);
                        }
                        return answer;
                    }
                    None => known.last(),
                };
            // Without random bytes, the pause has no jitter.
            let pause = delay(FIRST_PAUSE, LONGEST_PAUSE, tries - 1, 20, OsEntropy.bits().unwrap_or_default());
            if Instant::now() + pause >= end {
                break;
            }
            warn!(target: "idempotent", broker = %self.0.connection.address, tries, ?pause, cause, "publishing failed");
            tokio::time::sleep(pause).await;
        }
        Err(known.given_up())
    }
}

impl PublisherInner {
    fn proven(&self) -> MutexGuard<'_, HashSet<String>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prove(&self, exchange: &str) {
        let mut proven = self.proven();
        if !proven.contains(exchange) {
            // A limit, because producers may make up names.
            if proven.len() >= MOST_PROVEN {
                proven.clear();
            }
            proven.insert(exchange.to_owned());
        }
    }
}

impl fmt::Debug for RabbitPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitPublisher").field("broker", &self.0.connection.address).finish_non_exhaustive()
    }
}
