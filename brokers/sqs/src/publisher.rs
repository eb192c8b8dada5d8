//! Publishing of messages, e.g. for the relay of an outbox.
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use futures_util::future::join_all;
use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::{OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published, chains};

use crate::address::QueueAddress;
use crate::body::{self, StoredBody};
use crate::carrier::sent;
use crate::error::Failure;
use crate::fifo::{group_of, identifier};
use crate::message::whole_seconds;
use crate::queue::{BATCH, FifoIds, NewMessage, Queue};
use crate::setup::open;

/// A publisher that sends messages to queues in batches of up to ten. The topic of a message is the name or the URL of a queue.
///
/// | message | SQS |
/// |---|---|
/// | `topic` | the queue, which must exist |
/// | `body` | the body. A body that is empty or contains characters that SQS does not accept travels in Base64, with a mark in the attribute `idempotent` |
/// | `id`, `business_key` | `id` and `key` of the JSON in the attribute `idempotent`; the deduplication id in a FIFO queue |
/// | headers | an attribute of the type `String` or `Binary` each. Headers that SQS does not accept as attributes, repeated names, and headers after the ninth are in the attribute `idempotent`, in Base64 |
/// | `aggregate` | the message group in a FIFO queue; a message without an aggregate has a group of its own. Messages of one aggregate are sent one after another |
/// | `deliver_at` | a delay of at most 900 s by the clock of this process, rounded up to seconds; not in a FIFO queue |
///
/// SQS accepts 128 visible ASCII characters as a message group and as a deduplication id. Another text is replaced by its SHA-256.
///
/// A FIFO queue drops a message whose id it has received within 5 min. A standard queue stores it again, and its consumers recognize
/// the id.
///
/// The [position](Published::position) is the queue with the message id of SQS.
///
/// # Results
/// - [`Unconfirmed`](PublishErrorKind::Unconfirmed): the connection was lost, SQS did not answer within 5 s, or its answer cannot be read.
/// - [`Unsent`](PublishErrorKind::Unsent): SQS cannot be reached or limits the rate, or the credentials cannot be loaded.
/// - [`Refused`](PublishErrorKind::Refused): the queue is missing, SQS refuses the credentials or the message, or the delay is not
///   possible.
#[must_use]
pub struct SqsPublisher {
    client: Client,
    queues: Mutex<HashMap<String, Queue>>,
}

/// The longest delay of a message.
const LONGEST_DELAY: Duration = Duration::from_secs(900);
/// The maximum size of the messages of one batch. Older limits of SQS and emulators are this low. A larger message is sent alone.
const BATCH_SIZE: usize = 256 << 10;

type Sent = Result<Published, PublishError>;

/// A message with its index among the messages of the caller.
type Indexed = (usize, NewMessage);

impl SqsPublisher {
    /// Creates a publisher.
    pub fn new(client: Client) -> Self {
        Self { client, queues: Mutex::default() }
    }

    async fn queue(&self, topic: &str) -> Result<Queue, Failure> {
        if let Some(queue) = self.queues().get(topic) {
            return Ok(queue.clone());
        }
        let address = QueueAddress::parse("topic", topic).map_err(|error| Failure::permanent(&error))?;
        address.check_region(&self.client).map_err(|error| Failure::permanent(&error))?;
        let queue = open(&self.client, &address).await?;
        self.queues().insert(topic.to_owned(), queue.clone());
        Ok(queue)
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<String, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one message of each aggregate at most, and returns the results with the indexes of the messages.
    async fn round(&self, messages: &[OutboundMessage], round: Vec<usize>) -> Vec<(usize, Sent)> {
        let mut topics: HashMap<&str, Vec<usize>> = HashMap::new();
        for at in round {
            topics.entry(&messages[at].topic).or_default().push(at);
        }
        let sending = topics.into_iter().map(|(topic, indexes)| self.to_topic(topic, messages, indexes));
        join_all(sending).await.into_iter().flatten().collect()
    }

    async fn to_topic(&self, topic: &str, messages: &[OutboundMessage], indexes: Vec<usize>) -> Vec<(usize, Sent)> {
        let queue = match self.queue(topic).await {
            Ok(queue) => queue,
            Err(failure) => return indexes.into_iter().map(|at| (at, Err(failure.publish()))).collect(),
        };
        let (mut results, mut accepted, now) = (Vec::new(), Vec::new(), SystemClock::new().wall());
        for at in indexes {
            match convert(&queue, &messages[at], now) {
                Ok(message) => accepted.push((at, message)),
                Err(error) => results.push((at, Err(error))),
            }
        }
        let sent = join_all(batches(accepted).into_iter().map(|batch| send(&queue, batch))).await;
        results.extend(sent.into_iter().flatten());
        results
    }
}

/// Converts a message for its queue.
///
/// # Errors
/// The queue cannot delay the message.
fn convert(queue: &Queue, message: &OutboundMessage, now: Timestamp) -> Result<NewMessage, PublishError> {
    let delay = message.deliver_at.map(|at| Duration::from_micros(at.0.saturating_sub(now.0)));
    let delay = delay.filter(|delay| !delay.is_zero());
    if let Some(delay) = delay {
        let refusal = match queue.is_fifo() {
            true => "a FIFO queue cannot delay single messages; use a standard queue",
            false if delay > LONGEST_DELAY => "SQS delays a message by at most 15 min",
            false => "",
        };
        if !refusal.is_empty() {
            let text = format!(
                "{}: {refusal}; publish the message from a DelayTable, or by the delay queue on Redis",
                doing(queue)
            );
            return Err(PublishError::new(PublishErrorKind::Refused, text));
        }
    }
    let StoredBody { text, mark } = body::store(&message.body);
    let fifo = queue.is_fifo().then(|| FifoIds { group: group_of(message), deduplication: identifier(&message.id) });
    let delay = delay.map(|delay| i32::try_from(whole_seconds(delay)).unwrap_or(i32::MAX));
    Ok(NewMessage { body: text, attributes: sent(message, mark), fifo, delay })
}

/// Divides messages into batches by number and size.
fn batches(messages: Vec<Indexed>) -> Vec<Vec<Indexed>> {
    let (mut batches, mut room) = (Vec::<Vec<Indexed>>::new(), 0);
    for message in messages {
        let size = message.1.size();
        match batches.last_mut().filter(|batch| batch.len() < BATCH && size <= room) {
            Some(batch) => {
                room -= size;
                batch.push(message);
            }
            None => {
                room = BATCH_SIZE.saturating_sub(size);
                batches.push(vec![message]);
            }
        }
    }
    batches
}

/// Sends one batch.
async fn send(queue: &Queue, batch: Vec<Indexed>) -> Vec<(usize, Sent)> {
    let (indexes, messages): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let published = |sent: Result<Option<String>, Failure>| match sent {
        Ok(id) => Ok(Published::at(Position::of(queue.name.clone()).offset(id.unwrap_or_default()))),
        Err(failure) => Err(failure.publish()),
    };
    match queue.send_batch(messages, &doing(queue)).await {
        Ok(results) => indexes.into_iter().zip(results.into_iter().map(published)).collect(),
        Err(failure) => indexes.into_iter().map(|at| (at, Err(failure.publish()))).collect(),
    }
}

fn doing(queue: &Queue) -> String {
    format!("sending to the queue `{}`", queue.name)
}

#[async_trait]
impl Publish for SqsPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Sent> {
        let mut results: Vec<Sent> = messages.iter().map(|_| Err(PublishError::kept_back())).collect();
        let mut rest: Vec<VecDeque<usize>> = chains(messages).into_iter().map(VecDeque::from).collect();
        while !rest.is_empty() {
            let round = rest.iter().filter_map(|chain| chain.front().copied()).collect();
            for (at, sent) in self.round(messages, round).await {
                results[at] = sent;
            }
            // A chain ends at its first message that is not accepted.
            rest.retain_mut(|chain| chain.pop_front().is_some_and(|at| results[at].is_ok()) && !chain.is_empty());
        }
        results
    }

    fn delays(&self) -> bool {
        true
    }
}

impl fmt::Debug for SqsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsPublisher").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        let client = crate::client("sqs://eu-west-1?endpoint=http://127.0.0.1:1").unwrap();
        Queue::new(client, "http://127.0.0.1:1/1/orders", "orders")
    }

    #[test]
    fn a_batch_is_limited_by_number_and_by_size() {
        let of = |size: usize| {
            let message = OutboundMessage::new("orders", "m", vec![b'x'; size]);
            convert(&queue(), &message, Timestamp(0)).unwrap()
        };
        let rest = BATCH_SIZE - of(1).size() - of(1).size() + 1;
        for (sizes, expected) in [
            (vec![1; 25], vec![10, 10, 5]),
            (vec![1, rest], vec![2]),
            (vec![1, rest, 1], vec![2, 1]),
            (vec![1, rest + 1, 1], vec![1, 1, 1]),
            (vec![2 * BATCH_SIZE, 1], vec![1, 1]),
        ] {
            let messages = sizes.iter().map(|size| of(*size)).enumerate().collect();
            let lengths: Vec<_> = batches(messages).iter().map(Vec::len).collect();
            assert_eq!(lengths, expected, "{sizes:?}");
        }
    }

    #[test]
    fn the_longest_delay_is_15_min() {
        let delayed = |at| convert(&queue(), &OutboundMessage::new("orders", "m", "").deliver_at(at), Timestamp(7));
        assert_eq!(delayed(Timestamp(900_000_007)).unwrap().delay, Some(900));
        assert!(delayed(Timestamp(900_000_008)).unwrap_err().to_string().contains("sending to the queue `orders`"));
    }
}
