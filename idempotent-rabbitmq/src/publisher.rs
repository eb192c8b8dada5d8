//! A publisher that says what it knows.
mod attempt;
mod connection;
mod error;
mod later;
mod outbox;
mod together;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use self::attempt::Knowledge;
use self::connection::SharedConnection;
pub use self::error::{PublishError, PublishErrorKind};
use self::later::Due;
use crate::address::Address;
use crate::outgoing::LONGEST;
use crate::{DelayTopology, RabbitMessage, Route, SettingError};

/// Publishes messages and waits until the broker has confirmed them. Cheap to clone; clones share one connection, which
/// is made when it is first needed, and made again when it breaks.
///
/// A message whose confirm stays out is sent again under the same id, so it may be in a queue several times: consumers
/// tell its copies by that id.
///
/// ```no_run
/// use idempotent_rabbitmq::{RabbitMessage, PublishErrorKind, RabbitPublisher, Route};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RabbitPublisher::builder("amqp://guest:guest@localhost/%2f").build()?;
/// let paid = RabbitMessage::new("payment-17", r#"{"order":17}"#).content_type("application/json");
/// match publisher.publish(&Route::exchange("payments", "paid"), &paid).await {
///     Ok(()) => println!("in a queue"),
///     Err(error) if error.kind() == PublishErrorKind::Unconfirmed => println!("nobody knows: send it again, same id"),
///     Err(error) => println!("not in any queue: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RabbitPublisher(Arc<Inner>);

struct Inner {
    connection: SharedConnection,
    places: Semaphore,
    confirm_within: Duration,
    give_up_after: Duration,
    delays: DelayTopology,
    /// Exchanges that a message has got through: others may follow it on one channel.
    proven: Mutex<HashSet<String>>,
}

/// Sets up a [`RabbitPublisher`].
#[derive(Debug)]
#[must_use]
pub struct RabbitPublisherBuilder {
    address: Result<Address, SettingError>,
    in_flight: usize,
    confirm_within: Duration,
    give_up_after: Duration,
    delays: DelayTopology,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Channels of one connection, by the broker's default.
const MOST_IN_FLIGHT: usize = 2047;
const MOST_PROVEN: usize = 1_000;
const LONGEST_TRY: Duration = Duration::from_secs(24 * 3_600);

impl RabbitPublisherBuilder {
    /// How many channels are in use at most; [`publish`](RabbitPublisher::publish) waits for its turn. Each of its messages has one of
    /// its own; those of an outbox share some, up to 128 on each.
    ///
    /// # Default
    /// 32
    pub fn in_flight(mut self, messages: usize) -> Self {
        self.in_flight = messages;
        self
    }

    /// How long to wait for a confirm before the message is sent again, by another connection.
    ///
    /// # Default
    /// 5 s
    pub fn confirm_within(mut self, time: Duration) -> Self {
        self.confirm_within = time;
        self
    }

    /// Sets how long [`publish`](RabbitPublisher::publish) goes on trying: up to a day.
    ///
    /// # Default
    /// 30 s
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

    /// The publisher.
    ///
    /// # Errors
    /// A URL that cannot be read, or a limit of zero.
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
        Ok(RabbitPublisher(Arc::new(Inner {
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
    /// A publisher to this broker; the URL is that of [`RabbitSource::builder`](crate::RabbitSource::builder).
    pub fn builder(url: &str) -> RabbitPublisherBuilder {
        RabbitPublisherBuilder {
            address: Address::parse(url),
            in_flight: 32,
            confirm_within: Duration::from_secs(5),
            give_up_after: Duration::from_secs(30),
            delays: DelayTopology::quorum(),
        }
    }

    /// Publishes, and returns once the broker has confirmed that it keeps the message in at least one queue. Sends it
    /// again, under the same id and after growing pauses, while the broker is away, does not confirm or refuses it for
    /// now.
    ///
    /// # Errors
    /// By [`kind`](PublishError::kind), the message is in no queue, or nobody knows.
    ///
    /// # Cancellation
    /// Nobody knows whether it was published, unless it still waited for its turn.
    pub async fn publish(&self, to: &Route, message: &RabbitMessage) -> Result<(), PublishError> {
        // Its time begins with its turn.
        let _place = self.0.places.acquire().await;
        self.publish_from(Knowledge::default(), to, message, None, Instant::now() + self.0.give_up_after).await
    }

    /// Publishes a message of which something may be known from an earlier try. Needs a place.
    async fn publish_from(
        &self,
        mut known: Knowledge,
        to: &Route,
        message: &RabbitMessage,
        due: Option<Due>,
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
            // Less is left of its delay with each try.
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
            // Without randomness there is no jitter.
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

impl Inner {
    fn proven(&self) -> MutexGuard<'_, HashSet<String>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prove(&self, exchange: &str) {
        let mut proven = self.proven();
        if !proven.contains(exchange) {
            // Names that producers make up must not stay for ever.
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
