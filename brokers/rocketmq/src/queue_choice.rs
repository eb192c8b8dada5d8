//! The choice of a queue for a message.
use rocketmq_client_rust::{MessageQueueSelector, SelectMessageQueueByHash};
use rocketmq_model::common::message::message_queue::MessageQueue;
use rocketmq_model::common::message::message_single::Message;

/// The queue of a topic to which a message is sent.
#[derive(Clone, Debug)]
pub(crate) enum QueueChoice {
    /// The queue for the hash of this text. The choice is stable while the topic keeps its queues, and clients in other
    /// languages make the same choice.
    Hashed(String),
    /// The queue with this number, modulo the number of queues. Consecutive numbers are queues of different brokers, if the
    /// topic has several.
    Numbered(usize),
}

impl QueueChoice {
    /// Returns the chosen queue, or `None` if there are no queues.
    pub(crate) fn select(&self, queues: &[MessageQueue], message: &Message) -> Option<MessageQueue> {
        match self {
            Self::Hashed(text) => SelectMessageQueueByHash::new().select(queues, message, text),
            Self::Numbered(number) => {
                let mut queues: Vec<_> = queues.iter().collect();
                queues
                    .sort_by(|one, two| (one.queue_id(), one.broker_name()).cmp(&(two.queue_id(), two.broker_name())));
                queues.get(number.checked_rem(queues.len())?).map(|queue| (*queue).clone())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn queues() -> Vec<MessageQueue> {
        let of = |broker: &'static str| (0..3).map(move |queue| MessageQueue::from_parts("t", broker, queue));
        of("a").chain(of("b")).collect()
    }

    fn chosen(choice: &QueueChoice, queues: &[MessageQueue]) -> Option<(String, i32)> {
        let message = Message::builder().topic("t").body(vec![0]).build_unchecked();
        let queue = choice.select(queues, &message)?;
        Some((queue.broker_name().to_string(), queue.queue_id()))
    }

    #[test]
    fn one_text_is_one_queue_and_the_one_of_javas_hash() {
        let (all, hashed) = (queues(), |text: &str| QueueChoice::Hashed(text.to_owned()));
        assert_eq!(chosen(&hashed("order-17"), &all), chosen(&hashed("order-17"), &all));
        // The hash of "order-123" in Java is -392797389, which is -3 modulo 6.
        assert_eq!(chosen(&hashed("order-123"), &all), Some(("b".to_owned(), 0)));
        let many: std::collections::HashSet<_> = (0..100).map(|n| chosen(&hashed(&n.to_string()), &all)).collect();
        assert_eq!(many.len(), 6);
    }

    #[test]
    fn consecutive_numbers_choose_queues_of_different_brokers() {
        let all: Vec<_> = (5..11).map(|number| chosen(&QueueChoice::Numbered(number), &queues()).unwrap()).collect();
        assert!(all.windows(2).all(|two| two[0].0 != two[1].0), "{all:?}");
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 6);
        assert_eq!(chosen(&QueueChoice::Numbered(7), &[]), None);
        assert_eq!(chosen(&QueueChoice::Hashed("x".to_owned()), &[]), None);
    }
}
