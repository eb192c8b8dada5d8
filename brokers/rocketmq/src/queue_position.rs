//! The position of a message in a queue.
use idempotent_mq::Position;
use rocketmq_model::common::message::message_queue::MessageQueue;

/// The position of a message. Each broker numbers the messages of each of its queues.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QueuePosition {
    broker: String,
    queue: u32,
    offset: u64,
}

impl QueuePosition {
    /// Creates a position, or returns `None` if a number is negative.
    pub(crate) fn new<T: TryInto<u64>>(queue: &MessageQueue, offset: T) -> Option<Self> {
        let (number, offset) = (queue.queue_id().try_into().ok()?, offset.try_into().ok()?);
        Some(Self { broker: queue.broker_name().to_string(), queue: number, offset })
    }

    /// Returns the position for a delivery. Brokers number their queues independently, so the broker is part of the name:
    /// offsets of two brokers must not be compared.
    pub(crate) fn position(&self, topic: &str) -> Position {
        Position::of(format!("{topic}@{}", self.broker)).partition(self.queue).offset(self.offset)
    }

    /// Returns the place of the message for an operator.
    pub(crate) fn place(&self, topic: &str) -> String {
        format!("offset {} of queue {} of `{topic}` on {}", self.offset, self.queue, self.broker)
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Encodes the position for the property of a copy.
    pub(crate) fn encode(&self) -> String {
        format!("{} {} {}", self.offset, self.queue, self.broker)
    }

    /// Decodes the property of a copy, or returns `None` if it is malformed.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (offset, queue) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let broker = parts.next().filter(|broker| !broker.is_empty())?;
        Some(Self { broker: broker.to_owned(), queue, offset })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_position_is_decoded_unchanged_and_names_its_broker() {
        let position = QueuePosition::new(&MessageQueue::from_parts("t", "broker a", 3), 17_i64).unwrap();
        assert_eq!(QueuePosition::decode(&position.encode()), Some(position.clone()));
        assert_eq!(position.position("t"), Position::of("t@broker a").partition(3).offset(17));
        assert_eq!(QueuePosition::new(&MessageQueue::from_parts("t", "b", -1), 17_i64), None);
        assert_eq!(QueuePosition::new(&MessageQueue::from_parts("t", "b", 0), -1_i64), None);
        for bad in ["", "17", "17 3", "17 3 ", "-1 3 b", "a 3 b", "17 -3 b"] {
            assert_eq!(QueuePosition::decode(bad), None, "{bad}");
        }
    }
}
