//! A message as the broker delivered it.
use std::borrow::Cow;
use std::fmt;

use idempotent_core::Timestamp;

use crate::{Headers, Position};

/// A message as the broker delivered it. The adapter sets the fields, and a handler may read them.
///
/// ```
/// use idempotent_mq::{Delivery, Position};
///
/// let delivery = Delivery::new(Position::of("orders"), b"{}".to_vec()).id("m-17").header("trace", "abc");
/// assert_eq!(delivery.headers.first("trace"), Some(&b"abc"[..]));
/// // `Debug` shows no body, id or header value.
/// assert!(!format!("{delivery:?}").contains("m-17"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// The payload, byte for byte.
    pub body: Vec<u8>,
    /// The id of the message, which is the same for each delivery of the message. Not a number that the broker assigns to a
    /// delivery.
    pub id: Option<String>,
    /// The business key that the producer set, if the broker has a field for it (keys in RocketMQ, the record key in Kafka).
    pub business_key: Option<String>,
    /// The headers in order, without those of the adapter.
    pub headers: Headers,
    /// The number of this attempt, as stored by the last [`Retry`](crate::Retry), or 1 for a first attempt. `None` if the
    /// adapter cannot store the number.
    pub attempt: Option<u32>,
    /// The number of deliveries according to the broker, including this one. Deferrals and crashes count. `None` if the broker
    /// does not count.
    pub delivered: Option<u32>,
    /// The broker's hint that the message may have been delivered before. The hint is unreliable in both directions on every
    /// broker: use it in logs only, never to detect duplicates.
    pub redelivered: bool,
    /// The position of the message in its queue.
    pub position: Position,
    /// The expiry of the message. The consumer acknowledges an expired message without running its handler.
    pub expires_at: Option<Timestamp>,
    /// The time of the first delivery, as stored by the adapter.
    pub first_at: Option<Timestamp>,
    /// The number of earlier dead-letterings of the message, as stored by the adapter. Above 0 for a redriven message.
    pub deaths: u32,
    /// The reason for which the adapter could not read a part of the message, such as headers that its client cannot represent. The
    /// consumer dead-letters the message without a run.
    pub unreadable: Option<Cow<'static, str>>,
    /// The time at which [`Source::receive`](crate::Source::receive) returned the delivery. The consumer sets this field.
    pub received_at: Timestamp,
}

impl Delivery {
    /// Creates a delivery with a position and a body. All other fields are empty.
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
            unreadable: None,
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

    /// Appends a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Returns true if the message has expired.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Shows sizes and the position, but no body, id or header, because they may contain secrets.
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
