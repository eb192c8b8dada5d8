//! Delayed work that RocketMQ keeps.
use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{Cancelled, Delay, DelayError, OutboundMessage, Scheduled};

use crate::RocketPublisher;

/// Delayed work that is delivered to one topic: a [`Delay`] that uses [`RocketPublisher::publish`].
///
/// RocketMQ has a fixed set of delays, its levels, and no index of delayed messages by key. This has three consequences:
///
/// - [`schedule`](Delay::schedule) accepts a time for which the publisher has a suitable level, and refuses every other time with an
///   error that lists the levels. Set [`max_lateness`](crate::RocketPublisherBuilder::max_lateness) to accept later delivery. Work is
///   never delivered early by the broker's clock.
/// - [`schedule`](Delay::schedule) does not detect earlier work of the same key, and returns [`Scheduled::Unchecked`]. The key becomes
///   the message id, so a consumer that deduplicates by the id lets the first delivery take effect.
/// - [`cancel`](Delay::cancel) changes nothing and returns [`Cancelled::Unsupported`]. The handler checks whether the work is still
///   wanted.
///
/// ```no_run
/// use std::time::{Duration, SystemTime};
///
/// use idempotent_core::Timestamp;
/// use idempotent_mq::Delay;
/// use idempotent_rocketmq::{RocketDelay, RocketPublisher};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RocketPublisher::builder("rocketmq://localhost").build()?;
/// let limits = RocketDelay::new(publisher, "order_limits");
/// // 30 minutes are a delay level.
/// let at = Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed()? + Duration::from_secs(30 * 60);
/// limits.schedule("order-17", at, b"17").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RocketDelay {
    publisher: RocketPublisher,
    topic: String,
}

impl RocketDelay {
    /// Creates a delay that delivers to this topic, `TOPIC` or `TOPIC:TAG`.
    pub fn new(publisher: RocketPublisher, topic: impl Into<String>) -> Self {
        Self { publisher, topic: topic.into() }
    }
}

#[async_trait]
impl Delay for RocketDelay {
    /// Publishes the payload with the key as message id. The key must not be empty, or contain the characters U+0001 and U+0002.
    async fn schedule(&self, key: &str, at: Timestamp, payload: &[u8]) -> Result<Scheduled, DelayError> {
        let message = OutboundMessage::new(&self.topic, key, payload).deliver_at(at);
        Ok(self.publisher.publish(&message).await.map(|_| Scheduled::Unchecked)?)
    }

    /// Changes nothing and returns [`Cancelled::Unsupported`].
    async fn cancel(&self, _: &str) -> Result<Cancelled, DelayError> {
        Ok(Cancelled::Unsupported)
    }
}
