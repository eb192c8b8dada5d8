//! The trait that the sending half of an adapter implements.
use std::collections::HashMap;
use std::fmt;
use std::future::Future;

use async_trait::async_trait;
use futures_util::future::join_all;
use idempotent_core::{Entropy, EntropyError, OsEntropy, Timestamp};

use crate::error::failure;
use crate::{Headers, Position};

/// The sending half of an adapter, used by the relay of an outbox.
#[async_trait]
pub trait Publish: fmt::Debug + Send + Sync + 'static {
    /// Sends messages, and returns one result for each in the same order.
    ///
    /// Messages of one [`aggregate`](OutboundMessage::aggregate) are sent in the given order. After a message that was not
    /// accepted, later messages of its aggregate are not sent, and their result is [`Unsent`](PublishErrorKind::Unsent).
    ///
    /// The publisher may send a message several times with its id. After its own documented timeout, messages without a
    /// confirmation are [`Unconfirmed`](PublishErrorKind::Unconfirmed).
    ///
    /// # Errors
    /// Returns an error for each message that is not known to be published, with a [`kind`](PublishError::kind).
    ///
    /// # Cancellation
    /// Any of the messages may have been sent.
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>>;

    /// Returns true if the publisher supports [`OutboundMessage::deliver_at`]. For any other publisher, a relay refuses such
    /// messages with [`PublishError::cannot_delay`].
    ///
    /// # Default
    /// `false`, so that a publisher without delays delivers nothing early
    fn delays(&self) -> bool {
        false
    }
}

/// Implements [`Publish::publish`] for a client that sends one message at a time.
///
/// Messages of one aggregate are sent in sequence, up to the first that is not accepted. Different aggregates, and messages
/// without an aggregate, are sent concurrently.
///
/// # Errors
/// Returns one result for each message.
///
/// # Cancellation
/// Any of the messages may have been sent.
pub async fn publish_each<'a, Fut>(
    messages: &'a [OutboundMessage],
    send: impl Fn(&'a OutboundMessage) -> Fut,
) -> Vec<Result<Published, PublishError>>
where
    Fut: Future<Output = Result<Published, PublishError>>,
{
    let one_by_one = async |chain: Vec<usize>| {
        let (mut told, mut held_up) = (Vec::with_capacity(chain.len()), false);
        for at in chain {
            let sent = if held_up { Err(PublishError::kept_back()) } else { send(&messages[at]).await };
            held_up |= sent.is_err();
            told.push((at, sent));
        }
        told
    };
    let mut told: Vec<_> = join_all(chains(messages).into_iter().map(one_by_one)).await.into_iter().flatten().collect();
    told.sort_by_key(|(at, _)| *at);
    told.into_iter().map(|(_, sent)| sent).collect()
}

/// Groups messages that must be sent in sequence, as indexes into `messages`: those of one aggregate, and each message without
/// an aggregate separately. The groups have the order of their first messages.
#[must_use]
pub fn chains(messages: &[OutboundMessage]) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<usize>> = Vec::new();
    let mut known = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let next = chains.len();
        let chain = message.aggregate.as_ref().map_or(next, |aggregate| *known.entry(aggregate).or_insert(next));
        if chain == next {
            chains.push(Vec::new());
        }
        chains[chain].push(at);
    }
    chains
}

/// A message to be sent, for any broker.
///
/// ```
/// use idempotent_mq::OutboundMessage;
///
/// let paid = OutboundMessage::new("payments", "payment-17", br#"{"order":17}"#.to_vec()).header("trace", "abc").aggregate("order-17");
/// assert_eq!(paid.topic, "payments");
/// // `Debug` shows no body, id or header value.
/// assert!(!format!("{paid:?}").contains("17"));
/// ```
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboundMessage {
    /// The destination: a topic, queue or stream, as documented by the adapter.
    pub topic: String,
    /// The id of the message, which is the same each time the message is sent. Consumers deduplicate copies by this id.
    pub id: String,
    /// The business key, if the broker has a field for it (keys in RocketMQ).
    pub business_key: Option<String>,
    /// The aggregate, whose messages are sent in the order of their creation, and to one partition if there are partitions.
    pub aggregate: Option<String>,
    /// The headers in order.
    pub headers: Headers,
    /// The payload, byte for byte.
    pub body: Vec<u8>,
    /// The time before which the message must not be delivered, by the clock that the publisher documents. Publishers without
    /// [delays](Publish::delays) refuse the message.
    pub deliver_at: Option<Timestamp>,
}

impl OutboundMessage {
    /// Creates a message with a topic, an id and a body.
    #[must_use]
    pub fn new(topic: impl Into<String>, id: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            topic: topic.into(),
            id: id.into(),
            business_key: None,
            aggregate: None,
            headers: Headers::default(),
            body: body.into(),
            deliver_at: None,
        }
    }

    /// Creates a message with a topic, a random id of 32 hexadecimal digits, and a body.
    ///
    /// An id that is stored with the data, such as the id of a row, is the same after a restart of the publisher. Consumers then
    /// also detect copies from before the restart, which they cannot with a random id.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn with_random_id(topic: impl Into<String>, body: impl Into<Vec<u8>>) -> Result<Self, EntropyError> {
        Ok(Self::new(topic, format!("{:032x}", OsEntropy.bits()?), body))
    }

    /// Sets [`deliver_at`](Self::deliver_at). Messages of one aggregate with such times arrive in the order of those times, not of
    /// their creation.
    #[must_use]
    pub fn deliver_at(mut self, time: Timestamp) -> Self {
        self.deliver_at = Some(time);
        self
    }

    /// Sets [`business_key`](Self::business_key).
    #[must_use]
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// Sets [`aggregate`](Self::aggregate).
    #[must_use]
    pub fn aggregate(mut self, aggregate: impl Into<String>) -> Self {
        self.aggregate = Some(aggregate.into());
        self
    }

    /// Appends a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }
}

/// Shows the topic and sizes, but no body, id or header, because they may contain secrets.
impl fmt::Debug for OutboundMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundMessage")
            .field("topic", &self.topic)
            .field("bytes", &self.body.len())
            .field("headers", &self.headers.len())
            .field("deliver_at", &self.deliver_at)
            .finish_non_exhaustive()
    }
}

/// A message that the broker has confirmed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Published {
    /// The position of the message, if the broker reports it. A message that was sent several times has several positions, and
    /// this is the last one.
    pub position: Option<Position>,
}

impl Published {
    /// Creates the result for a confirmed message with an unknown position.
    #[must_use]
    pub fn somewhere() -> Self {
        Self::default()
    }

    /// Creates the result for a confirmed message with a known position.
    #[must_use]
    pub fn at(position: Position) -> Self {
        Self { position: Some(position) }
    }
}

failure! {
    /// An error of a publisher: the message is not known to be published.
    PublishError of PublishErrorKind
}

impl PublishError {
    /// Returns the error for a message that was not sent because an earlier one of its aggregate was not accepted.
    #[must_use]
    pub fn kept_back() -> Self {
        Self::new(PublishErrorKind::Unsent, "an earlier message of its aggregate was not accepted")
    }

    /// Returns the error for a message with [`deliver_at`](OutboundMessage::deliver_at) that was handed to a publisher without delays.
    #[must_use]
    pub fn cannot_delay() -> Self {
        Self::new(
            PublishErrorKind::Refused,
            "the message has `deliver_at`, and this publisher cannot delay: it would arrive early. Leave `deliver_at` out, or \
             publish by RabbitMQ, by the delay queue on Redis, or from a DelayTable",
        )
    }
}

/// The kind of a [`PublishError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// The message is in no queue, and a retry may succeed.
    Unsent,
    /// The message may or may not be published: send it again with the same id.
    Unconfirmed,
    /// The message is in no queue, and a retry is useless: the topic is missing, no queue is bound, access is denied, or the
    /// broker cannot transmit the message.
    Refused,
}

impl PublishErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::Unsent => "not sent",
            Self::Unconfirmed => "sent, but not confirmed",
            Self::Refused => "refused",
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_the_message_was_sent() {
        let text = |kind| PublishError::new(kind, "no queue").to_string();
        let kinds = [PublishErrorKind::Unsent, PublishErrorKind::Unconfirmed, PublishErrorKind::Refused];
        let expected = ["not sent: no queue", "sent, but not confirmed: no queue", "refused: no queue"];
        assert_eq!(kinds.map(text), expected);
    }

    #[derive(Debug)]
    struct PlainPublisher;

    #[async_trait]
    impl Publish for PlainPublisher {
        async fn publish(&self, _: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
            Vec::new()
        }
    }

    #[test]
    fn a_publisher_delays_no_messages_by_default() {
        assert!(!PlainPublisher.delays());
    }

    #[tokio::test]
    async fn messages_after_a_rejected_one_of_the_same_aggregate_are_not_sent() {
        let message = |id: &str| OutboundMessage::new("t", id, "");
        let messages = [
            message("a1").aggregate("a"),
            message("b1").aggregate("b"),
            message("bad").aggregate("a"),
            message("a3").aggregate("a"),
            message("alone"),
            message("b2").aggregate("b"),
            message("bad"),
        ];
        let asked = std::sync::Mutex::new(Vec::new());
        let told = publish_each(&messages, async |message| {
            asked.lock().unwrap().push(message.id.clone());
            tokio::task::yield_now().await;
            match message.id.as_str() {
                "bad" => Err(PublishError::new(PublishErrorKind::Refused, "no")),
                _ => Ok(Published::somewhere()),
            }
        })
        .await;
        let told: Vec<_> = told.into_iter().map(|told| told.err().map(|error| error.kind())).collect();
        let (refused, unsent) = (Some(PublishErrorKind::Refused), Some(PublishErrorKind::Unsent));
        assert_eq!(told, [None, None, refused, unsent, None, None, refused]);
        let asked = asked.into_inner().unwrap();
        let place = |id: &str| asked.iter().position(|asked| asked == id).unwrap();
        assert!(!asked.contains(&"a3".to_owned()), "{asked:?}");
        assert!(place("b1") < place("b2") && place("alone") < place("b2"), "side by side: {asked:?}");
    }
}
