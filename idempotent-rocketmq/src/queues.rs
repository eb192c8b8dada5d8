//! Queues: which one a message goes to, and where in it a message lies.
use idempotent_mq::Position;
use rocketmq_client_rust::{MessageQueueSelector, SelectMessageQueueByHash};
use rocketmq_model::common::message::message_queue::MessageQueue;
use rocketmq_model::common::message::message_single::Message;

/// Which of its topic's queues a message goes to.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// The one of this name: the same as long as the topic keeps its queues, and the one that clients in other languages
    /// choose by it, too.
    Of(String),
    /// Any. Numbers that follow each other are queues of different brokers, if there are several.
    Any(usize),
}

impl Choice {
    pub(crate) fn among(&self, queues: &[MessageQueue], message: &Message) -> Option<MessageQueue> {
        match self {
            Self::Of(name) => SelectMessageQueueByHash::new().select(queues, message, name),
            Self::Any(number) => {
                let mut queues: Vec<_> = queues.iter().collect();
                queues
                    .sort_by(|one, two| (one.queue_id(), one.broker_name()).cmp(&(two.queue_id(), two.broker_name())));
                queues.get(number.checked_rem(queues.len())?).map(|queue| (*queue).clone())
            }
        }
    }
}

/// Where a message lies: a broker numbers the messages of each queue that it has of a topic.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    broker: String,
    queue: u32,
    offset: u64,
}

impl Place {
    pub(crate) fn of<T: TryInto<u64>>(queue: &MessageQueue, offset: T) -> Option<Self> {
        let (number, offset) = (queue.queue_id().try_into().ok()?, offset.try_into().ok()?);
        Some(Self { broker: queue.broker_name().to_string(), queue: number, offset })
    }

    /// Brokers number their queues each for itself, so the broker is a part of the name: offsets of two must not be compared.
    pub(crate) fn position(&self, topic: &str) -> Position {
        Position::of(format!("{topic}@{}", self.broker)).partition(self.queue).offset(self.offset)
    }

    pub(crate) fn to_mark(&self) -> String {
        format!("{} {} {}", self.offset, self.queue, self.broker)
    }

    pub(crate) fn read(mark: &str) -> Option<Self> {
        let mut parts = mark.splitn(3, ' ');
        let (offset, queue) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let broker = parts.next().filter(|broker| !broker.is_empty())?;
        Some(Self { broker: broker.to_owned(), queue, offset })
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

    fn chosen(choice: &Choice, queues: &[MessageQueue]) -> Option<(String, i32)> {
        let message = Message::builder().topic("t").body(vec![0]).build_unchecked();
        let queue = choice.among(queues, &message)?;
        Some((queue.broker_name().to_string(), queue.queue_id()))
    }

    #[test]
    fn one_name_is_one_queue_and_the_one_that_javas_hash_says() {
        let (all, name) = (queues(), |name: &str| Choice::Of(name.to_owned()));
        assert_eq!(chosen(&name("order-17"), &all), chosen(&name("order-17"), &all));
        // The hash of "order-123" in Java is -392797389, which is -3 by 6.
        assert_eq!(chosen(&name("order-123"), &all), Some(("b".to_owned(), 0)));
        let many: std::collections::HashSet<_> = (0..100).map(|n| chosen(&name(&n.to_string()), &all)).collect();
        assert_eq!(many.len(), 6);
    }

    #[test]
    fn any_is_the_next_each_time_and_of_another_broker() {
        let any: Vec<_> = (5..11).map(|number| chosen(&Choice::Any(number), &queues()).unwrap()).collect();
        assert!(any.windows(2).all(|two| two[0].0 != two[1].0), "{any:?}");
        assert_eq!(any.iter().collect::<std::collections::HashSet<_>>().len(), 6);
        assert_eq!(chosen(&Choice::Any(7), &[]), None);
        assert_eq!(chosen(&Choice::Of("x".to_owned()), &[]), None);
    }

    #[test]
    fn a_place_is_the_same_once_it_was_a_mark_and_offsets_of_two_brokers_lie_in_two_queues() {
        let place = Place::of(&MessageQueue::from_parts("t", "broker a", 3), 17_i64).unwrap();
        assert_eq!(Place::read(&place.to_mark()), Some(place.clone()));
        assert_eq!(place.position("t"), Position::of("t@broker a").partition(3).offset(17));
        assert_eq!(Place::of(&MessageQueue::from_parts("t", "b", -1), 17_i64), None);
        assert_eq!(Place::of(&MessageQueue::from_parts("t", "b", 0), -1_i64), None);
        for bad in ["", "17", "17 3", "17 3 ", "-1 3 b", "a 3 b", "17 -3 b"] {
            assert_eq!(Place::read(bad), None, "{bad}");
        }
    }
}
