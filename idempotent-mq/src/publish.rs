//! What the sending half of an adapter implements.
use std::fmt;

use std::collections::HashMap;
use std::future::Future;

use async_trait::async_trait;
use futures_util::future::join_all;
use idempotent_core::Timestamp;

use crate::error::failure;
use crate::{Headers, Position};

/// Sends messages to a broker and says what it knows of each: the sending half of an adapter, as an outbox's relay uses
/// it.
#[async_trait]
pub trait Publish: fmt::Debug + Send + Sync + 'static {
    /// Sends these messages, those of one [`aggregate`](OutboundMessage::aggregate) in this order, and returns once it is known
    /// what became of each; the answers stand in the same order. One that was not accepted keeps the later ones of its
    /// aggregate back, as [`Unsent`](PublishErrorKind::Unsent).
    ///
    /// May send a message several times under its id. Gives up in its own time, which it documents: what a confirm is
    /// still outstanding for then is [`Unconfirmed`](PublishErrorKind::Unconfirmed).
    ///
    /// # Errors
    /// One for each message, by [`kind`](PublishError::kind).
    ///
    /// # Cancellation
    /// Nobody knows which messages were sent.
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>>;

    /// Whether this publisher keeps to [`OutboundMessage::deliver_at`]. A relay hands such messages to no other publisher: it refuses
    /// them, with [`PublishError::cannot_delay`].
    ///
    /// # Default
    /// `false`, so that a publisher that does not know of delays delivers nothing early
    fn delays(&self) -> bool {
        false
    }
}

/// [`Publish::publish`] for an adapter whose client sends one message at a time: those of one aggregate one behind the
/// other, which ends where one is not accepted; different aggregates, and messages of none, side by side.
///
/// # Errors
/// One for each message.
///
/// # Cancellation
/// Nobody knows which messages were sent.
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

/// What has to be sent one behind the other, as places in `messages`: those of one aggregate, and each message of none by
/// itself. In the order of their first ones.
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
/// // Neither body nor ids nor headers are ever shown.
/// assert!(!format!("{paid:?}").contains("17"));
/// ```
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboundMessage {
    /// Where to: a topic, queue or stream, in the adapter's own words; its docs say which.
    pub topic: String,
    /// Chosen once, when the message came about, and the same each time it is sent: by this consumers tell its copies.
    pub id: String,
    /// What the message is about, where the broker has a place for that (RocketMQ's keys).
    pub business_key: Option<String>,
    /// Messages of one aggregate are sent in the order they came about, and to one partition where there are some.
    pub aggregate: Option<String>,
    /// In order.
    pub headers: Headers,
    /// The payload, byte for byte.
    pub body: Vec<u8>,
    /// The time before which the message must not be delivered, by the publisher's clock or the broker's, as the publisher's
    /// docs say. Only for publishers that [delay](Publish::delays): all others refuse the message.
    pub deliver_at: Option<Timestamp>,
}

impl OutboundMessage {
    /// A message of this id to this topic, and nothing else.
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

    /// Sets [`deliver_at`](Self::deliver_at). Messages of one aggregate with such times arrive in the order of those times, and
    /// not in the order in which they came about.
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

    /// Adds a header behind those there are.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }
}

/// Sizes and places only: bodies, ids and headers may be anything.
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
    /// Where it lies, on brokers that say so. A message that was sent several times lies in several places; this is the
    /// last of them.
    pub position: Option<Position>,
}

impl Published {
    /// Confirmed, and nobody said where it lies.
    #[must_use]
    pub fn somewhere() -> Self {
        Self::default()
    }

    /// Confirmed to lie here.
    #[must_use]
    pub fn at(position: Position) -> Self {
        Self { position: Some(position) }
    }
}

failure! {
    /// Why a message is not known to be published.
    PublishError of PublishErrorKind
}

impl PublishError {
    /// Of a message that was not sent, since an earlier one of its aggregate was not accepted.
    #[must_use]
    pub fn kept_back() -> Self {
        Self::new(PublishErrorKind::Unsent, "an earlier one of its aggregate was not accepted")
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

/// What may be concluded from a [`PublishError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// It is in no queue, and another try may do.
    Unsent,
    /// Nobody knows whether it was published: send it again under the same id.
    Unconfirmed,
    /// It is in no queue, and will not be as it is: no such topic, nobody bound to it, too large.
    Refused,
}

impl PublishErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::Unsent => "not sent",
            Self::Unconfirmed => "sent, and nobody knows whether it arrived",
            Self::Refused => "refused by the broker",
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_follows_one_that_was_not_accepted_in_its_aggregate_stays_behind_and_others_do_not() {
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
