//! Received messages as deliveries.
use std::fmt;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use idempotent_core::Timestamp;
use idempotent_mq::{Delivery, Position};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::attributes::StoredAttributes;
use crate::body;
use crate::fifo::group_hash;
use crate::queue::Queue;

/// The handle that settles a message. It identifies one receive of the message.
pub struct SqsTag {
    pub(crate) receipt: String,
    /// The id that SQS has assigned.
    pub(crate) message: String,
    received: Instant,
    pub(crate) attributes: StoredAttributes,
    /// The message group in a FIFO queue.
    pub(crate) group: Option<String>,
    /// Locked while a request changes the visibility timeout, so that a keep-alive does not undo a settlement.
    pub(crate) hold: Mutex<Hold>,
}

/// The state of a held message.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// The retry or return has a mark.
    pub(crate) is_marked: bool,
    /// The message is delayed or returned.
    pub(crate) has_ended: bool,
    /// The dead letter is confirmed, and the message is not deleted yet.
    pub(crate) is_buried: bool,
}

/// The maximum time from the receive of a message to the end of its visibility timeout.
const LONGEST_HOLD: u64 = 43_200;

impl SqsTag {
    /// Returns a visibility timeout of at least this time in whole seconds, counted from now. SQS limits the whole time since the
    /// receive to 12 h, so the timeout is shorter near that limit.
    pub(crate) fn seconds(&self, time: Duration) -> i32 {
        let held = whole_seconds(self.received.elapsed());
        let seconds = whole_seconds(time).min(LONGEST_HOLD.saturating_sub(held));
        i32::try_from(seconds).unwrap_or(0)
    }
}

/// Returns a time in seconds, rounded up.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// Converts a message that was received now.
pub(crate) fn delivery(queue: &Queue, message: Message) -> (Delivery, SqsTag) {
    let system = message.attributes.unwrap_or_default();
    let number = |name| system.get(&name).and_then(|text| text.parse::<u64>().ok());
    let attributes = StoredAttributes::parse(message.message_attributes);
    let id = message.message_id.unwrap_or_default();
    let group = system.get(&MessageSystemAttributeName::MessageGroupId).cloned();
    let mut position = Position::of(queue.name.clone()).offset(&id);
    position.partition = group.as_deref().filter(|_| queue.is_fifo()).map(group_hash);
    let mut delivery = Delivery::new(position, body::load(message.body.unwrap_or_default(), attributes.text("body")));
    delivery.id = Some(attributes.text("id").unwrap_or(&id).to_owned());
    delivery.business_key = attributes.text("key").map(str::to_owned);
    delivery.headers = attributes.headers();
    delivery.attempt = Some(1);
    let delivered = number(MessageSystemAttributeName::ApproximateReceiveCount);
    delivery.delivered = delivered.and_then(|count| count.try_into().ok());
    delivery.redelivered = delivered.is_some_and(|count| count > 1);
    let received = || number(MessageSystemAttributeName::ApproximateFirstReceiveTimestamp);
    let first_at = || received().map(|millis| Timestamp(millis.saturating_mul(1_000)));
    delivery.first_at = attributes.time("first_at").or_else(first_at);
    delivery.deaths = attributes.number("deaths").unwrap_or(0);
    let tag = SqsTag {
        receipt: message.receipt_handle.unwrap_or_default(),
        message: id,
        received: Instant::now(),
        attributes,
        group,
        hold: Mutex::default(),
    };
    (delivery, tag)
}

impl fmt::Debug for SqsTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsTag").field("message", &self.message).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag() -> SqsTag {
        SqsTag {
            receipt: String::new(),
            message: String::new(),
            received: Instant::now(),
            attributes: StoredAttributes::default(),
            group: None,
            hold: Mutex::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_visibility_timeout_is_rounded_up_and_ends_at_most_12_h_after_the_receive() {
        let tag = tag();
        let seconds = |time: Duration| tag.seconds(time);
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_secs(30)), 30);
        assert_eq!(seconds(Duration::MAX), 43_200);
        tokio::time::advance(Duration::from_secs(43_180)).await;
        assert_eq!((seconds(Duration::from_secs(10)), seconds(Duration::from_secs(30))), (10, 20));
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(seconds(Duration::from_secs(30)), 0);
    }
}
