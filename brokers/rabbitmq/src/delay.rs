//! Delayed work on RabbitMQ.
use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{Cancelled, Delay, DelayError, OutboundMessage, Scheduled};

use crate::{RabbitPublisher, Route};

/// Delayed work that is delivered to one route: a [`Delay`] that uses [`RabbitPublisher::publish`].
///
/// RabbitMQ has no index of delayed messages by key. This has two consequences:
///
/// - [`schedule`](Delay::schedule) does not detect earlier work of the same key, and returns [`Scheduled::Unchecked`].
///   The key becomes the message id, so a consumer that deduplicates by the id lets the first delivery take effect.
/// - [`cancel`](Delay::cancel) changes nothing and returns [`Cancelled::Unsupported`]. The handler checks whether the
///   work is still wanted.
///
/// ```no_run
/// use std::time::{Duration, SystemTime};
///
/// use idempotent_core::Timestamp;
/// use idempotent_mq::Delay;
/// use idempotent_rabbitmq::{RabbitPublisher, RabbitDelay, Route};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RabbitPublisher::builder("amqp://guest:guest@localhost/%2f").build()?;
/// let limits = RabbitDelay::new(publisher, Route::queue("order_limits"));
/// let at = Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed()? + Duration::from_secs(30 * 60);
/// limits.schedule("order-17", at, b"17").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RabbitDelay {
    publisher: RabbitPublisher,
    to: Route,
}

impl RabbitDelay {
    /// Creates a delay that delivers to this route.
    pub fn new(publisher: RabbitPublisher, to: Route) -> Self {
        Self { publisher, to }
    }
}

#[async_trait]
impl Delay for RabbitDelay {
    /// Publishes the payload with the key as message id. The key has at most 255 bytes.
    async fn schedule(&self, key: &str, at: Timestamp, payload: &[u8]) -> Result<Scheduled, DelayError> {
        let message = OutboundMessage::new(&self.to, key, payload).deliver_at(at);
        Ok(self.publisher.publish(&message).await.map(|_| Scheduled::Unchecked)?)
    }

    /// Changes nothing and returns [`Cancelled::Unsupported`].
    async fn cancel(&self, _: &str) -> Result<Cancelled, DelayError> {
        Ok(Cancelled::Unsupported)
    }
}
