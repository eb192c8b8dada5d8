//! A message to be published.
use std::fmt;

use idempotent_core::{Entropy, EntropyError, OsEntropy};
use idempotent_mq::Headers;
use rocketmq_model::common::topic::TopicValidator;

use crate::SettingError;
use crate::headers::encode_headers;
use crate::producer::{MAX_BODY, PreparedMessage};
use crate::properties::{EMPTY, HEADERS, KEYS, TAGS, UNIQ_KEY, as_property};
use crate::settings::check_name;

/// A message to be published. All copies that a publisher sends have the same id.
///
/// ```
/// use idempotent_rocketmq::RocketMessage;
///
/// let order = RocketMessage::new("m-17", "{}").key("order-17").tag("paid").header("tenant", "acme");
/// // The debug output shows neither ids nor bodies.
/// assert!(!format!("{order:?}").contains("17"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct RocketMessage {
    id: String,
    body: Vec<u8>,
    headers: Headers,
    key: Option<String>,
    tag: Option<String>,
}

/// Maximum size of all properties in bytes. The broker stores their length in 15 bits, and copies get further properties.
const MAX_PROPERTIES: usize = i16::MAX as usize - 4 * 1024;

impl RocketMessage {
    /// Creates a message with this id, which becomes its `UNIQ_KEY`. To detect copies from a publisher that was restarted, use
    /// an id that is stored with the subject of the message, such as the id of a row.
    pub fn new(id: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let (id, body) = (id.into(), body.into());
        Self { id, body, headers: Headers::default(), key: None, tag: None }
    }

    /// Creates a message with a random id of 32 hexadecimal digits.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn with_random_id(body: impl Into<Vec<u8>>) -> Result<Self, EntropyError> {
        Ok(Self::new(format!("{:032X}", OsEntropy.bits()?), body))
    }

    /// Sets the business key, which becomes `KEYS`.
    ///
    /// # Default
    /// None
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the tag, by which consumers select messages.
    ///
    /// # Default
    /// None
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Appends a header. A text with a unique name becomes a property that every client can read. All other headers are packed
    /// into one property, which sources of this crate decode.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Returns the message id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Encodes the message for immediate delivery, or returns why no broker can accept the message.
    pub(crate) fn prepare(&self, topic: &str) -> Result<PreparedMessage, SettingError> {
        check_name("topic", topic)?;
        if TopicValidator::is_not_allowed_send_topic(topic) {
            return Err(SettingError::new("topic: reserved for the broker; choose another topic"));
        }
        if !u32::try_from(self.body.len()).is_ok_and(|bytes| bytes <= MAX_BODY) {
            return Err(SettingError::new("body: longer than 128 MiB, the client's limit; send a shorter body"));
        }
        let mut properties = encode_headers(&self.headers, HEADERS);
        let own = [(UNIQ_KEY, Some(&self.id)), (KEYS, self.key.as_ref()), (TAGS, self.tag.as_ref())];
        for (name, value) in own.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let Some(value) = as_property(value.as_bytes()) else {
                return Err(SettingError::new(
                    "id, key or tag: empty, or contains one of the characters U+0001 and U+0002; choose another value",
                ));
            };
            properties.insert(name.to_owned(), value.to_owned());
        }
        if self.body.is_empty() {
            properties.insert(EMPTY.to_owned(), "1".to_owned());
        }
        if properties.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>() > MAX_PROPERTIES {
            return Err(SettingError::new(
                "headers: too long, since RocketMQ limits all properties to 32 KB; move data into the body",
            ));
        }
        Ok(PreparedMessage { topic: topic.to_owned(), properties, flag: 0, level: 0, body: self.body.clone() })
    }
}

/// Shows sizes only.
impl fmt::Debug for RocketMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocketMessage")
            .field("bytes", &self.body.len())
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_the_broker_would_truncate_or_misread_is_rejected_with_the_reason() {
        let long = RocketMessage::new("m", "b").header("long", "x".repeat(40_000));
        assert!(long.prepare("t").unwrap_err().to_string().contains("32 KB"));
        for odd in
            [RocketMessage::new("", "b"), RocketMessage::new("a\u{1}b", "b"), RocketMessage::new("m", "b").key("")]
        {
            assert!(odd.prepare("t").is_err());
        }
        for topic in ["no.dots", "", "a:b", "SCHEDULE_TOPIC_XXXX"] {
            assert!(RocketMessage::new("m", "b").prepare(topic).is_err(), "{topic}");
        }
        assert!(RocketMessage::new("m", "b").prepare("orders_1").is_ok());
    }
}
