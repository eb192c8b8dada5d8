//! The properties that this crate adds to copies and dead letters. Their names begin with `x-idempotent-`.
use std::borrow::Cow;

use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, Delivery, Envelope, Field, Headers, MessagePlace, Position, Retry, SourceError, SourceErrorKind,
};
use rocketmq_model::common::message::message_ext::MessageExt;

use crate::body::read_body;
use crate::headers::decode_packed;
use crate::producer::MAX_BODY;
use crate::properties::{
    COMPRESSED, EMPTY, HEADERS, KEYS, MAX_DEAD, MAX_PROPERTIES, MAX_RETRIED, OF_MESSAGE, PREFIX, Properties,
    SEPARATORS, UNIQ_KEY, is_of_one_delivery, length,
};
use crate::queue_position::QueuePosition;
use crate::settings::SourceSettings;

/// The decoded properties of a message: the properties of its producer, and the values that this crate added to a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryHeaders {
    /// The producer's properties, without the properties that the broker adds for one delivery.
    producer: Properties,
    pub(crate) flag: i32,
    pub(crate) envelope: Envelope,
    /// The position of the original message.
    pub(crate) position: Option<QueuePosition>,
    /// True for a dead letter without the body of its message.
    lacks_body: bool,
}

/// The topic and the group whose consumer has dead-lettered a message.
const TOPIC: Field = Field::Origin("topic");
const GROUP: Field = Field::Origin("group");
/// The position of the original message.
const PLACE: Field = Field::Origin("place");
/// The place of the body that a dead letter lacks, because the broker refuses the whole letter.
const BODY_AT: Field = Field::Origin("body-at");
/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 1024;
/// Maximum length in bytes of the names of properties in a reason.
const MAX_NAMES: usize = 256;

impl RetryHeaders {
    /// Decodes the properties of a message from this place. Malformed values, and those that the place does not believe, are ignored.
    pub(crate) fn decode<'a>(
        all: impl IntoIterator<Item = (&'a str, &'a str)>,
        flag: i32,
        place: MessagePlace,
    ) -> Self {
        let (mut producer, mut own) = (Properties::new(), Properties::new());
        for (name, value) in all {
            match name.strip_prefix(PREFIX).filter(|_| !OF_MESSAGE.contains(&name)) {
                Some(own_name) => drop(own.insert(own_name.to_owned(), value.to_owned())),
                None if is_of_one_delivery(name) => {}
                None => drop(producer.insert(name.to_owned(), value.to_owned())),
            }
        }
        let position = own.get(PLACE.name()).filter(|_| place.believes(PLACE));
        Self {
            producer,
            flag,
            envelope: Envelope::read(place, |field| stored(&own, field)),
            position: position.and_then(|position| QueuePosition::decode(position)),
            lacks_body: place.believes(BODY_AT) && own.contains_key(BODY_AT.name()),
        }
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

    /// Returns the body of the message, or the stored bytes if they cannot be decompressed.
    pub(crate) fn read_body(&mut self, message: &MessageExt) -> Vec<u8> {
        if self.has_empty_body() { Vec::new() } else { read_body(message, &mut self.producer) }
    }

    /// Returns whether the body was empty before it was sent, or a dead letter lacks it.
    pub(crate) fn has_empty_body(&self) -> bool {
        self.lacks_body || self.producer.contains_key(EMPTY)
    }

    /// Returns the reason for which the body cannot be read.
    fn unreadable(&self) -> Option<String> {
        let number = self.property(COMPRESSED)?;
        Some(format!(
            "the body cannot be decompressed: its compression has the unknown number {number}, the data is damaged, or it becomes \
             larger than {MAX_BODY} bytes"
        ))
    }

    /// Returns the headers for a handler: properties ordered by name, then packed headers in the producer's order.
    pub(crate) fn headers(&self) -> Headers {
        let is_header = |name: &str| !OF_MESSAGE.contains(&name) && ![UNIQ_KEY, KEYS].contains(&name);
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
        delivery.unreadable = self.unreadable().map(Cow::Owned);
        self.envelope.clone().open(&mut delivery);
        delivery
    }

    /// Returns the properties of a copy for a retry.
    ///
    /// # Errors
    /// `Refused`: the properties of the message leave no room for those of the copy.
    pub(crate) fn encode_retry(&self, retry: &Retry) -> Result<Properties, SourceError> {
        let bytes = length(&self.producer);
        if bytes > MAX_RETRIED {
            let text = format!(
                "retrying: the properties of the message take {bytes} bytes, and RocketMQ stores 32 KB with those of the copy, \
                 which leaves {MAX_RETRIED}; send shorter properties"
            );
            return Err(SourceError::new(SourceErrorKind::Refused, text));
        }
        let mut properties = encode(&self.producer, self.envelope.clone().retried(retry));
        set(&mut properties, Field::Reason, &retry.reason);
        self.set_position(&mut properties);
        Ok(properties)
    }

    /// Returns the properties of an unchanged copy, for a delivery that was given back or dropped. The position is left out if there
    /// is no room.
    pub(crate) fn encode_unchanged(&self) -> Properties {
        let mut properties = encode(&self.producer, self.envelope.clone());
        let without = properties.clone();
        self.set_position(&mut properties);
        if length(&properties) > MAX_PROPERTIES { without } else { properties }
    }

    /// Returns the properties of a dead letter, and the number of those that it lacks. The attempt and the position are left out, so a
    /// dead letter that is sent to the topic again starts with its first attempt. The longest properties of the producer are left out if
    /// there is no room.
    pub(crate) fn encode_dead_letter(&self, letter: &DeadLetter, settings: &SourceSettings) -> (Properties, usize) {
        let mut producer = self.producer.clone();
        let left_out = leave_out_longest(&mut producer);
        let mut letter = letter.clone();
        if !left_out.is_empty() {
            let names = left_out.join("`, `");
            let names = &names[..names.floor_char_boundary(MAX_NAMES)];
            letter.reason = with_note(
                &letter.reason,
                &format!(
                    "the letter lacks `{names}`, because properties of more than {MAX_DEAD} bytes leave no room for its own"
                ),
            );
        }
        let mut properties = encode(&producer, self.envelope.clone().dead(&letter));
        set(&mut properties, TOPIC, &settings.topic);
        set(&mut properties, GROUP, &settings.group);
        (properties, left_out.len())
    }

    /// Returns the properties of a dead letter without a body, which names the place of its message instead.
    pub(crate) fn encode_reference(
        &self,
        letter: &DeadLetter,
        settings: &SourceSettings,
        refusal: &str,
    ) -> (Properties, usize) {
        let topic = &settings.topic;
        let place = self.position.as_ref().map(|position| position.place(topic));
        // A copy without room for the position, or one that the client of an earlier version has sent back.
        let place = place.unwrap_or_else(|| format!("an unknown offset of `{topic}`"));
        let note = format!("the letter lacks the body, which is at {place}: {refusal}");
        let mut letter = letter.clone();
        letter.reason = with_note(&letter.reason, &note);
        let (mut properties, left_out) = self.encode_dead_letter(&letter, settings);
        set(&mut properties, BODY_AT, &place);
        (properties, left_out)
    }

    fn set_position(&self, properties: &mut Properties) {
        if let Some(position) = &self.position {
            set(properties, PLACE, &position.encode());
        }
    }
}

/// Returns the place of the body that a dead letter lacks.
pub(crate) fn place_of_body(properties: &Properties) -> Option<&str> {
    properties.get(&property_of(BODY_AT)).map(String::as_str)
}

/// Returns the topic from which a consumer has dead-lettered the message.
pub(crate) fn original_topic(properties: &Properties) -> Option<&str> {
    properties.get(&property_of(TOPIC)).map(String::as_str)
}

/// Returns the value of a field among the properties of this crate, by their names after the prefix.
fn stored(own: &Properties, field: Field) -> Option<Cow<'_, str>> {
    let value = || own.get(name_of(field)).map(|value| Cow::Borrowed(&**value));
    match field {
        // Properties of RocketMQ.
        Field::Id | Field::BusinessKey => None,
        // RocketMQ reads an empty value as a missing property, and a reason may be empty.
        Field::Reason => Some(value().unwrap_or_default()),
        _ => value(),
    }
}

/// Returns the name of a field after the prefix.
fn name_of(field: Field) -> &'static str {
    if field == Field::LetterId { Field::Id.name() } else { field.name() }
}

fn property_of(field: Field) -> String {
    format!("{PREFIX}{}", name_of(field))
}

/// Returns the properties of the producer and of an envelope.
fn encode(producer: &Properties, envelope: Envelope) -> Properties {
    let mut properties = producer.clone();
    envelope.write(|field, value| set(&mut properties, field, &value.to_string()));
    properties
}

/// Returns whether a property decides which message it is, or how it is read.
fn is_of_identity(name: &str) -> bool {
    [UNIQ_KEY, KEYS].contains(&name) || OF_MESSAGE.contains(&name)
}

/// Removes the longest properties until those of a dead letter have room, and returns their names.
fn leave_out_longest(properties: &mut Properties) -> Vec<String> {
    let mut left_out = Vec::new();
    while length(properties) > MAX_DEAD
        && let Some((name, _)) =
            properties.iter().max_by_key(|(name, value)| (!is_of_identity(name), name.len() + value.len()))
    {
        let name = name.clone();
        properties.remove(&name);
        left_out.push(name);
    }
    left_out
}

/// Returns a reason with a note, where the reason gives way if both are too long.
fn with_note(reason: &str, note: &str) -> Cow<'static, str> {
    let end = reason.floor_char_boundary(MAX_TEXT.saturating_sub(note.len() + 2));
    format!("{}; {note}", &reason[..end]).into()
}

/// Sets a property, truncated to its maximum length.
fn set(properties: &mut Properties, field: Field, value: &str) {
    let end = value.floor_char_boundary(MAX_TEXT);
    // RocketMQ reads an empty value as a missing property.
    if end > 0 {
        properties.insert(property_of(field), value[..end].replace(SEPARATORS, " "));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
