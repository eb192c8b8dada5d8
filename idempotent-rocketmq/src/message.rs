//! A message to be published.
use std::fmt;
use std::time::Duration;

use idempotent_core::{Entropy, EntropyError, OsEntropy};
use idempotent_mq::Headers;
use rocketmq_model::common::topic::TopicValidator;

use crate::SettingError;
use crate::client::{LARGEST, Outbound};
use crate::delay_levels::Ladder;
use crate::headers::{pack, plain};
use crate::retry_headers::{EMPTY, HEADERS, KEYS, TAGS, UNIQ_KEY};
use crate::settings::check_name;

/// A message to be published. Its id is fixed here, so it is the same however often it is sent.
///
/// ```
/// use idempotent_rocketmq::RocketMessage;
///
/// let order = RocketMessage::new("m-17", "{}").key("order-17").tag("paid").header("tenant", "acme");
/// // Neither ids nor bodies are shown.
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
    after: Duration,
}

/// Of all properties of a message, in bytes: the broker writes their length in 15 bits, and copies have marks beside them.
const MOST_PROPERTIES: usize = i16::MAX as usize - 4 * 1024;

impl RocketMessage {
    /// A message with this id, which becomes its `UNIQ_KEY`: one that is kept with what the message is about, such as the
    /// id of a row in an outbox, also sees the copies of a publisher that was started again.
    pub fn new(id: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let (id, body) = (id.into(), body.into());
        Self { id, body, headers: Headers::default(), key: None, tag: None, after: Duration::ZERO }
    }

    /// A message with an id of its own: 32 random hex digits.
    ///
    /// # Errors
    /// The operating system gave no randomness.
    pub fn with_random_id(body: impl Into<Vec<u8>>) -> Result<Self, EntropyError> {
        Ok(Self::new(format!("{:032X}", OsEntropy.bits()?), body))
    }

    /// What the message is about: its `KEYS`, read back as the delivery's business key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Its tag, by which consumers may choose.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Adds a header behind those there are. Text under a name of its own becomes a property that every client can read;
    /// anything else travels packed, for sources of this crate.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// It comes after this time, rounded up to one of the broker's default delay levels: 1 s to 2 h.
    ///
    /// # Default
    /// At once
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }

    /// The message's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Says what cannot be sent, and never will be.
    pub(crate) fn outbound(&self, topic: &str) -> Result<Outbound, SettingError> {
        check_name("topic", topic)?;
        if TopicValidator::is_not_allowed_send_topic(topic) {
            return Err(SettingError::new("this topic is the broker's own: nobody may send there"));
        }
        if !u32::try_from(self.body.len()).is_ok_and(|bytes| bytes <= LARGEST) {
            return Err(SettingError::new("a body is longer than 128 MiB, which the client does not send"));
        }
        let mut properties = pack(&self.headers, HEADERS);
        let own = [(UNIQ_KEY, Some(&self.id)), (KEYS, self.key.as_ref()), (TAGS, self.tag.as_ref())];
        for (name, value) in own.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let Some(value) = plain(value.as_bytes()) else {
                return Err(SettingError::new(
                    "an id, key or tag is empty, or has one of the characters U+0001 and U+0002",
                ));
            };
            properties.insert(name.to_owned(), value.to_owned());
        }
        if self.body.is_empty() {
            properties.insert(EMPTY.to_owned(), "1".to_owned());
        }
        if properties.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>() > MOST_PROPERTIES {
            return Err(SettingError::new("the headers are too long: RocketMQ has room for 32 KB, marks included"));
        }
        let level = Ladder::default().level(self.after);
        Ok(Outbound { topic: topic.to_owned(), properties, flag: 0, level, body: self.body.clone() })
    }
}

/// Sizes only.
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
    fn what_the_broker_would_cut_or_misread_is_refused_with_the_reason() {
        let long = RocketMessage::new("m", "b").header("long", "x".repeat(40_000));
        assert!(long.outbound("t").unwrap_err().to_string().contains("32 KB"));
        for odd in
            [RocketMessage::new("", "b"), RocketMessage::new("a\u{1}b", "b"), RocketMessage::new("m", "b").key("")]
        {
            assert!(odd.outbound("t").is_err());
        }
        for topic in ["no.dots", "", "a:b", "SCHEDULE_TOPIC_XXXX"] {
            assert!(RocketMessage::new("m", "b").outbound(topic).is_err(), "{topic}");
        }
        assert!(RocketMessage::new("m", "b").outbound("orders_1").is_ok());
    }
}
