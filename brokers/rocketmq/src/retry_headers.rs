//! The properties that this crate adds to copies and dead letters. Their names begin with `x-idempotent-`.
mod dead_letter;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Delivery, Headers, MessagePlace, OwnData, Position, Retry};

pub(crate) use self::dead_letter::{decode_letter, original_topic};

use crate::headers::decode_packed;
use crate::properties::{EMPTY, HEADERS, KEYS, Properties, SEPARATORS, UNIQ_KEY, is_of_one_delivery, is_own};
use crate::queue_position::QueuePosition;
use crate::settings::SourceSettings;

/// The decoded properties of a message: the properties of its producer, and the values that this crate added to a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryHeaders {
    /// The producer's properties, without the properties that the broker adds for one delivery.
    producer: Properties,
    pub(crate) flag: i32,
    pub(crate) attempt: Option<u32>,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) deaths: u32,
    /// The position of the original message.
    pub(crate) position: Option<QueuePosition>,
}

const ATTEMPT: &str = "x-idempotent-attempt";
const FIRST_AT: &str = "x-idempotent-first-at";
const LAST_AT: &str = "x-idempotent-last-at";
const ATTEMPTS: &str = "x-idempotent-attempts";
const DEATHS: &str = "x-idempotent-deaths";
const REASON: &str = "x-idempotent-reason";
const ID: &str = "x-idempotent-id";
const TOPIC: &str = "x-idempotent-topic";
const GROUP: &str = "x-idempotent-group";
const PLACE: &str = "x-idempotent-place";
/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 1024;

impl RetryHeaders {
    /// Decodes the properties of a message from this place. Malformed values, and those that the place does not believe, are ignored.
    pub(crate) fn decode<'a>(
        all: impl IntoIterator<Item = (&'a str, &'a str)>,
        flag: i32,
        place: MessagePlace,
    ) -> Self {
        let mut decoded = Self { flag, ..Self::default() };
        for (name, value) in all {
            match name {
                ATTEMPT if !place.believes(OwnData::Attempt) => {}
                PLACE if !place.believes(OwnData::Origin) => {}
                ATTEMPT => decoded.attempt = value.parse().ok(),
                FIRST_AT => decoded.first_at = value.parse().ok().map(Timestamp),
                DEATHS => decoded.deaths = value.parse().unwrap_or_default(),
                PLACE => decoded.position = QueuePosition::decode(value),
                HEADERS | EMPTY => decoded.keep(name, value),
                _ if is_own(name) || is_of_one_delivery(name) => {}
                _ => decoded.keep(name, value),
            }
        }
        decoded
    }

    fn keep(&mut self, name: &str, value: &str) {
        self.producer.insert(name.to_owned(), value.to_owned());
    }

    fn property(&self, name: &str) -> Option<&str> {
        self.producer.get(name).map(String::as_str)
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.property(UNIQ_KEY)
    }

    pub(crate) fn business_key(&self) -> Option<&str> {
        self.property(KEYS)
    }

    /// Returns whether the body was empty before it was sent.
    pub(crate) fn has_empty_body(&self) -> bool {
        self.producer.contains_key(EMPTY)
    }

    /// Returns the headers for a handler: properties ordered by name, then packed headers in the producer's order.
    pub(crate) fn headers(&self) -> Headers {
        let is_header = |name: &str| !is_own(name) && name != UNIQ_KEY && name != KEYS;
        let plain = self.producer.iter().filter(|(name, _)| is_header(name));
        let mut headers: Headers = plain.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let packed = self.property(HEADERS).map(decode_packed).unwrap_or_default();
        packed.iter().for_each(|(name, value)| headers.push(name, value));
        headers
    }

    /// Returns the time in a header, a number of ms since 1970.
    pub(crate) fn expires_at(&self, header: Option<&str>) -> Option<Timestamp> {
        let ms: u64 = self.property(header?)?.trim().parse().ok()?;
        Some(Timestamp(ms.saturating_mul(1_000)))
    }

    /// Returns a delivery with these headers.
    pub(crate) fn delivery(&self, position: Position, body: Vec<u8>) -> Delivery {
        let mut delivery = Delivery::new(position, body);
        delivery.id = self.id().map(str::to_owned);
        delivery.business_key = self.business_key().map(str::to_owned);
        delivery.headers = self.headers();
        (delivery.first_at, delivery.deaths) = (self.first_at, self.deaths);
        delivery
    }

    /// Returns the properties of a copy for a retry.
    pub(crate) fn encode_retry(&self, retry: &Retry) -> Properties {
        let mut properties = self.producer.clone();
        set_number(&mut properties, ATTEMPT, retry.attempt);
        set_number(&mut properties, FIRST_AT, retry.first_at.0);
        set_text(&mut properties, REASON, &retry.reason);
        self.set_common(&mut properties);
        properties
    }

    /// Returns the properties of an unchanged copy, for a delivery that was given back or dropped.
    pub(crate) fn encode_unchanged(&self) -> Properties {
        let mut properties = self.producer.clone();
        if let Some(attempt) = self.attempt {
            set_number(&mut properties, ATTEMPT, attempt);
        }
        if let Some(first_at) = self.first_at {
            set_number(&mut properties, FIRST_AT, first_at.0);
        }
        self.set_common(&mut properties);
        properties
    }

    /// Returns the properties of a dead letter. The attempt and the position are left out, so a dead letter that is sent to the
    /// topic again starts with its first attempt.
    pub(crate) fn encode_dead_letter(&self, letter: &DeadLetter, settings: &SourceSettings) -> Properties {
        let mut properties = self.producer.clone();
        set_text(&mut properties, REASON, &letter.reason);
        set_text(&mut properties, TOPIC, &settings.topic);
        set_text(&mut properties, GROUP, &settings.group);
        set_number(&mut properties, ATTEMPTS, letter.attempts);
        set_number(&mut properties, FIRST_AT, letter.first_at.0);
        set_number(&mut properties, LAST_AT, letter.last_at.0);
        set_number(&mut properties, DEATHS, letter.deaths);
        if let Some(id) = &letter.id {
            set_text(&mut properties, ID, id);
        }
        properties
    }

    /// Sets the properties of all copies that are redelivered.
    fn set_common(&self, properties: &mut Properties) {
        if self.deaths > 0 {
            set_number(properties, DEATHS, self.deaths);
        }
        if let Some(position) = &self.position {
            set_text(properties, PLACE, &position.encode());
        }
    }
}

fn set_number(properties: &mut Properties, name: &str, value: impl Into<u64>) {
    properties.insert(name.to_owned(), value.into().to_string());
}

fn set_text(properties: &mut Properties, name: &str, value: &str) {
    let end = value.floor_char_boundary(MAX_TEXT);
    // RocketMQ reads an empty value as a missing property.
    if end > 0 {
        properties.insert(name.to_owned(), value[..end].replace(SEPARATORS, " "));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
