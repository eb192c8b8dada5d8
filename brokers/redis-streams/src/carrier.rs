//! Mapping between the fields of entries and deliveries, including the fields of dead letters.
use std::borrow::Cow;
use std::sync::Arc;

use idempotent_mq::{DeadLetter, Delivery, Envelope, Field, MessagePlace, Position};
use redis::Cmd;

use crate::reply::StreamEntry;

/// Names and values, unchanged.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The names of the fields with a meaning.
#[derive(Clone, Debug)]
pub(crate) struct FieldMapping {
    pub(crate) stream: Arc<str>,
    pub(crate) body: String,
    pub(crate) id: Option<String>,
    pub(crate) business_key: Option<String>,
}

/// The prefix of the fields of this adapter. These are not headers.
const OWN: &str = "idempotent-";
/// The id of the entry of a dead letter.
const ENTRY: Field = Field::Origin("entry");

/// Returns the name of a field after the prefix. The id of the message is another field, which the producer sets.
fn name_of(field: Field) -> &'static str {
    if field == Field::LetterId { Field::Id.name() } else { field.name() }
}

/// Returns the last value of a field, because a producer may have used the same name before.
fn own(fields: &Fields, field: Field) -> Option<Cow<'_, str>> {
    if matches!(field, Field::Id | Field::BusinessKey) {
        return None;
    }
    let is_it = |name: &[u8]| name.strip_prefix(OWN.as_bytes()).is_some_and(|name| name == name_of(field).as_bytes());
    let (_, value) = fields.iter().rev().find(|(name, _)| is_it(name))?;
    Some(String::from_utf8_lossy(value))
}

impl FieldMapping {
    /// Decodes an entry. The first field with the name of the body is the body; all other fields are headers. Without
    /// such a field, the body is empty.
    pub(crate) fn delivery(&self, entry: &StreamEntry) -> Delivery {
        let position = Position::of(self.stream.clone()).offset(&entry.id);
        let mut delivery = Delivery::new(position, Vec::new());
        let mut body = None;
        for (name, value) in &entry.fields {
            if name == self.body.as_bytes() && body.is_none() {
                body = Some(value.clone());
                continue;
            }
            match name.as_slice() {
                name if is_dead_letter_field(name) => {}
                name => {
                    let is = |known: &Option<String>| known.as_ref().is_some_and(|known| name == known.as_bytes());
                    // With replacement characters, the text could be equal to another id.
                    let utf8 = || String::from_utf8(value.clone()).ok().filter(|text| !text.is_empty());
                    if is(&self.id) && delivery.id.is_none() {
                        delivery.id = utf8();
                    }
                    if is(&self.business_key) && delivery.business_key.is_none() {
                        delivery.business_key = utf8();
                    }
                    delivery.headers.push(String::from_utf8_lossy(name), value.clone());
                }
            }
        }
        delivery.body = body.unwrap_or_default();
        if self.id.is_none() {
            // Entry ids are times: two streams of one group may have equal ones.
            delivery.id = Some(format!("{}/{}", self.stream, entry.id));
        }
        let mut envelope = Envelope::read(MessagePlace::Queue, |field| own(&entry.fields, field));
        envelope.attempt = entry.mark.map(|mark| mark.attempt);
        envelope.first_at = entry.mark.map(|mark| mark.first_at).or(envelope.first_at);
        envelope.open(&mut delivery);
        delivery.delivered = Some(entry.delivered);
        delivery.redelivered = entry.delivered > 1;
        delivery
    }
}

/// Encodes the fields of a dead letter: the fields of the entry, unchanged, followed by the added ones.
pub(crate) fn encode_letter(fields: &Fields, entry: &str, letter: &DeadLetter) -> Fields {
    let mut all: Fields = fields.iter().filter(|(name, _)| !is_dead_letter_field(name)).cloned().collect();
    let mut add =
        |field, value: String| all.push((format!("{OWN}{}", name_of(field)).into_bytes(), value.into_bytes()));
    Envelope::default().dead(letter).write(|field, value| add(field, value.to_string()));
    add(ENTRY, entry.to_owned());
    all
}

/// Decodes the added fields of a dead letter, or returns `None` if they are missing.
pub(crate) fn decode_letter(fields: &Fields) -> Option<DeadLetter> {
    Envelope::read(MessagePlace::DeadLetters, |field| own(fields, field)).letter
}

/// Returns whether a script can pass these fields to `XADD`. Lua passes at most 8,000 values to a function.
pub(crate) fn fits_into_script(fields: &Fields) -> bool {
    fields.len() <= 3_900
}

/// Returns the command that adds an entry with any number of fields. With `existing`, the stream must exist.
pub(crate) fn add(stream: &str, existing: bool, fields: &Fields) -> Cmd {
    let mut add = redis::cmd("XADD");
    add.arg(stream);
    if existing {
        add.arg("NOMKSTREAM");
    }
    add.arg("*");
    for (name, value) in fields {
        add.arg(name).arg(value);
    }
    add
}

pub(crate) fn is_dead_letter_field(name: &[u8]) -> bool {
    use Field::{Attempts, Deaths, FirstAt, LastAt, LetterId, Reason};
    let fields = [Reason, LetterId, Attempts, FirstAt, LastAt, Deaths, ENTRY].into_iter();
    name.strip_prefix(OWN.as_bytes()).is_some_and(|rest| fields.map(name_of).any(|known| rest == known.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fields_of_a_dead_letter_are_reserved() {
        for (rest, is_reserved) in [("reason", true), ("entry", true), ("reasons", false), ("", false), ("x", false)] {
            let name = format!("{OWN}{rest}");
            assert_eq!(is_dead_letter_field(name.as_bytes()), is_reserved, "{name}");
        }
        assert!(!is_dead_letter_field(b"reason"));
    }

    #[test]
    fn fields_of_earlier_versions_are_read_and_written_again() {
        let added = [
            ("idempotent-reason", "no stock"),
            ("idempotent-id", "k:1"),
            ("idempotent-attempts", "5"),
            ("idempotent-first-at", "4"),
            ("idempotent-last-at", "9"),
            ("idempotent-deaths", "2"),
            ("idempotent-entry", "7-0"),
        ];
        let stored: Fields = added.map(|(name, value)| (name.into(), value.into())).into();
        let letter = decode_letter(&stored).unwrap();
        assert_eq!((&*letter.reason, letter.id.as_deref(), letter.attempts), ("no stock", Some("k:1"), 5));
        assert_eq!((letter.first_at.0, letter.last_at.0, letter.deaths), (4, 9, 2));
        let sorted = |mut fields: Fields| {
            fields.sort();
            fields
        };
        assert_eq!(sorted(encode_letter(&stored, "7-0", &letter)), sorted(stored.clone()));
        let of_queue = Envelope::read(MessagePlace::Queue, |field| own(&stored, field));
        assert_eq!((of_queue.id, of_queue.deaths, of_queue.letter), (None, 2, None));
    }
}
