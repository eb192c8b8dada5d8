//! One message, as a broker delivered it.
use std::fmt;

use idempotent_core::Timestamp;

use crate::{Headers, Position};

/// One message, as a broker delivered it: what an adapter fills in and a handler may read.
///
/// ```
/// use idempotent_mq::{Delivery, Position};
///
/// let delivery = Delivery::new(Position::of("orders"), b"{}".to_vec()).id("m-17").header("trace", "abc");
/// assert_eq!(delivery.headers.first("trace"), Some(&b"abc"[..]));
/// // Neither body nor ids nor headers are ever shown.
/// assert!(!format!("{delivery:?}").contains("m-17"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// The payload, byte for byte as it came.
    pub body: Vec<u8>,
    /// The message's own id: the same each time *this* message is delivered. Not a number the broker gives to a
    /// delivery.
    pub id: Option<String>,
    /// What the producer says the message is about (RocketMQ's keys, Kafka's record key), where the broker has a place
    /// for that.
    pub business_key: Option<String>,
    /// In order, without the adapter's own marks.
    pub headers: Headers,
    /// Which attempt this is, by the mark that the last [`Retry`](crate::Retry) left on the message; 1 where there is
    /// none. `None` if the adapter has no place for a mark.
    pub attempt: Option<u32>,
    /// How often the broker says it has delivered the message, this time included. Deferrals and crashes count.
    /// `None` if it does not count.
    pub delivered: Option<u32>,
    /// The broker's hint that it may have delivered the message before. Wrong in both directions on every broker there
    /// is, so it is for logs, never a test for duplicates.
    pub redelivered: bool,
    /// Where it came from.
    pub position: Position,
    /// From here on it is of no use to anybody: acknowledged without being run.
    pub expires_at: Option<Timestamp>,
    /// When the message was first delivered, by the adapter's mark.
    pub first_at: Option<Timestamp>,
    /// How often the message was put aside before, by the adapter's mark: more than 0 for one that comes out of a dead
    /// letter queue.
    pub deaths: u32,
    /// When [`Source::receive`](crate::Source::receive) handed it over, by the consumer's clock; set by the consumer.
    pub received_at: Timestamp,
}

impl Delivery {
    /// A delivery of this payload from this place, and nothing else known of it.
    #[must_use]
    pub fn new(position: Position, body: Vec<u8>) -> Self {
        Self {
            body,
            id: None,
            business_key: None,
            headers: Headers::default(),
            attempt: None,
            delivered: None,
            redelivered: false,
            position,
            expires_at: None,
            first_at: None,
            deaths: 0,
            received_at: Timestamp(0),
        }
    }

    /// Sets [`id`](Self::id).
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets [`business_key`](Self::business_key).
    #[must_use]
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// Adds a header behind those there are.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Whether it is of no use to anybody any more.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Sizes and places only: bodies, ids and headers may be anything.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("position", &self.position)
            .field("bytes", &self.body.len())
            .field("headers", &self.headers.len())
            .field("attempt", &self.attempt)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}
