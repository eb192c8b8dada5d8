//! Received messages as deliveries.
use std::fmt;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use idempotent_core::Timestamp;
use idempotent_mq::{Delivery, MessagePlace, Position};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::body;
use crate::carrier::StoredAttributes;
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
    /// The queue from which SQS has moved the message by a redrive policy.
    pub(crate) moved_from: Option<String>,
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

    /// Returns the visibility timeout of an extension. A message that was held for 12 h is delivered again instead.
    pub(crate) fn extension(&self, time: Duration) -> Option<i32> {
        Some(self.seconds(time)).filter(|seconds| *seconds > 0)
    }
}

/// Returns a time in seconds, rounded up.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// Converts a message that was received now from this place.
pub(crate) fn delivery(queue: &Queue, message: Message, place: MessagePlace) -> (Delivery, SqsTag) {
    let system = message.attributes.unwrap_or_default();
    let number = |name| system.get(&name).and_then(|text| text.parse::<u64>().ok());
    let moved_from = system.get(&MessageSystemAttributeName::DeadLetterQueueSourceArn);
    let moved_from = moved_from.and_then(|arn| arn.rsplit(':').next()).map(str::to_owned);
    // SQS itself has moved the message, so a producer wrote all its attributes.
    let place = if moved_from.is_some() { MessagePlace::Queue } else { place };
    let attributes = StoredAttributes::parse(message.message_attributes, place);
    let id = message.message_id.unwrap_or_default();
    let group = system.get(&MessageSystemAttributeName::MessageGroupId).cloned();
    let mut position = Position::of(queue.name.clone()).offset(&id);
    position.partition = group.as_deref().filter(|_| queue.is_fifo()).map(group_hash);
    let mut delivery = Delivery::new(position, body::load(message.body.unwrap_or_default(), attributes.body_mark()));
    delivery.id = Some(id.clone());
    attributes.envelope().open(&mut delivery);
    delivery.headers = attributes.headers();
    let delivered = number(MessageSystemAttributeName::ApproximateReceiveCount);
    delivery.delivered = delivered.and_then(|count| count.try_into().ok());
    delivery.redelivered = delivered.is_some_and(|count| count > 1);
    let received = || number(MessageSystemAttributeName::ApproximateFirstReceiveTimestamp);
    let first_at = || received().map(|millis| Timestamp(millis.saturating_mul(1_000)));
    delivery.first_at = delivery.first_at.or_else(first_at);
    let tag = SqsTag {
        receipt: message.receipt_handle.unwrap_or_default(),
        message: id,
        received: Instant::now(),
        attributes,
        group,
        moved_from,
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tag() -> SqsTag {
        SqsTag {
            receipt: String::new(),
            message: String::new(),
            received: Instant::now(),
            attributes: StoredAttributes::parse(None, MessagePlace::Queue),
            group: None,
            moved_from: None,
            hold: Mutex::default(),
        }
    }

    #[test]
    fn a_message_that_sqs_has_moved_has_only_the_data_of_its_producer() {
        let client = aws_sdk_sqs::Config::builder().behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest());
        let client = aws_sdk_sqs::Client::from_conf(client.build());
        let queue = Queue::new(client, "", "orders-dead");
        let own = r#"{"id": "m-1", "first_at": 4, "deaths": 1,
            "letter": {"queue": "payments", "reason": "x", "attempts": 1, "last_at": 9}}"#;
        let own = aws_sdk_sqs::types::MessageAttributeValue::builder().data_type("String").string_value(own);
        let written = Message::builder().message_attributes("idempotent", own.build().unwrap());
        let arn = "arn:aws:sqs:eu-west-1:1:orders";
        let moved = written.clone().attributes(MessageSystemAttributeName::DeadLetterQueueSourceArn, arn);
        let read = |message: Message| delivery(&queue, message, MessagePlace::DeadLetters).1;
        let (written, moved) = (read(written.build()), read(moved.build()));
        assert_eq!((written.attributes.origin().0.as_deref(), written.moved_from), (Some("payments"), None));
        assert_eq!((moved.attributes.origin().0, moved.moved_from.as_deref()), (None, Some("orders")));
        let moved = moved.attributes.envelope();
        assert_eq!((moved.letter, moved.id.as_deref()), (None, Some("m-1")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_visibility_timeout_is_rounded_up_and_ends_at_most_12_h_after_the_receive() {
        let tag = tag();
        let seconds = |time: Duration| tag.seconds(time);
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!((seconds(Duration::from_secs(30)), tag.extension(Duration::from_secs(30))), (30, Some(30)));
        assert_eq!(seconds(Duration::MAX), 43_200);
        tokio::time::advance(Duration::from_secs(43_180)).await;
        assert_eq!((seconds(Duration::from_secs(10)), seconds(Duration::from_secs(30))), (10, 20));
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(tag.extension(Duration::from_secs(30)), None);
        assert_eq!(seconds(Duration::from_secs(30)), 0);
    }
}
