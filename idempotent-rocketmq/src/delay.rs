//! Delayed work that RocketMQ keeps.
use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{Cancelled, Delay, DelayError, DelayErrorKind, Scheduled};

use crate::RocketMessage;
use crate::publisher::{PublishError, PublishErrorKind, RocketPublisher};

/// Delayed work that is delivered to one topic: a [`Delay`] that uses [`RocketPublisher::publish_at`].
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
/// let publisher = RocketPublisher::builder("localhost:9876").build()?;
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
    tag: Option<String>,
}

impl RocketDelay {
    /// Creates a delay that delivers to this topic.
    pub fn new(publisher: RocketPublisher, topic: impl Into<String>) -> Self {
        Self { publisher, topic: topic.into(), tag: None }
    }

    /// Sets the tag of all messages.
    ///
    /// # Default
    /// None
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }
}

#[async_trait]
impl Delay for RocketDelay {
    /// Publishes the payload with the key as message id. The key must not be empty, or contain the characters U+0001 and U+0002.
    async fn schedule(&self, key: &str, at: Timestamp, payload: &[u8]) -> Result<Scheduled, DelayError> {
        let mut message = RocketMessage::new(key, payload);
        if let Some(tag) = &self.tag {
            message = message.tag(tag);
        }
        let published = self.publisher.publish_at(&self.topic, &message, at).await;
        published.map(|()| Scheduled::Unchecked).map_err(not_scheduled)
    }

    /// Changes nothing and returns [`Cancelled::Unsupported`].
    async fn cancel(&self, _: &str) -> Result<Cancelled, DelayError> {
        Ok(Cancelled::Unsupported)
    }
}

fn not_scheduled(error: PublishError) -> DelayError {
    let kind = match error.kind() {
        PublishErrorKind::Refused => DelayErrorKind::Refused,
        PublishErrorKind::NotSent => DelayErrorKind::NotApplied,
        PublishErrorKind::Unconfirmed => DelayErrorKind::Ambiguous,
    };
    DelayError::new(kind, error.to_string()).with_cause(error)
}
