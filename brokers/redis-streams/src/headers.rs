//! Mapping between the fields of entries and deliveries, including the fields of dead letters.
use std::sync::Arc;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Delivery, Position};
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

/// Prefix of the fields that are added to a dead letter. These are not headers.
const DEAD_LETTER_PREFIX: &str = "idempotent-";
const FIRST_AT: &str = "idempotent-first-at";
const DEATHS: &str = "idempotent-deaths";

impl FieldMapping {
    /// Decodes an entry. The first field with the name of the body is the body; all other fields are headers. Without
    /// such a field, the body is empty.
    pub(crate) fn delivery(&self, entry: &StreamEntry) -> Delivery {
        let position = Position::of(self.stream.clone()).offset(&entry.id);
        let mut delivery = Delivery::new(position, Vec::new());
        let mut body = None;
        for (name, value) in &entry.fields {
            let text = || String::from_utf8_lossy(value).into_owned();
            if name == self.body.as_bytes() && body.is_none() {
                body = Some(value.clone());
                continue;
            }
            match name.as_slice() {
                name if name == FIRST_AT.as_bytes() => delivery.first_at = text().parse().ok().map(Timestamp),
                name if name == DEATHS.as_bytes() => delivery.deaths = text().parse().unwrap_or(0),
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
        delivery.delivered = Some(entry.delivered);
        delivery.attempt = Some(entry.mark.map_or(1, |mark| mark.attempt));
        delivery.first_at = entry.mark.map(|mark| mark.first_at).or(delivery.first_at);
        delivery.redelivered = entry.delivered > 1;
        delivery
    }
}

/// Encodes the fields of a dead letter: the fields of the entry, unchanged, followed by the added ones.
pub(crate) fn encode_letter(fields: &Fields, entry: &str, letter: &DeadLetter) -> Fields {
    let mut all: Fields = fields.iter().filter(|(name, _)| !is_dead_letter_field(name)).cloned().collect();
    let mut mark =
        |name: &str, value: String| all.push((format!("{DEAD_LETTER_PREFIX}{name}").into_bytes(), value.into_bytes()));
    mark("reason", letter.reason.to_string());
    if let Some(id) = &letter.id {
        mark("id", id.clone());
    }
    mark("attempts", letter.attempts.to_string());
    mark("first-at", letter.first_at.0.to_string());
    mark("last-at", letter.last_at.0.to_string());
    mark("deaths", letter.deaths.to_string());
    mark("entry", entry.to_owned());
    all
}

/// Decodes the added fields of a dead letter, or returns `None` if they are missing.
pub(crate) fn decode_letter(fields: &Fields) -> Option<DeadLetter> {
    // The last fields count, because a producer may have used the same names.
    let mark = |name: &str| {
        let mut marks = fields.iter().rev().filter(|(known, _)| is_dead_letter_field(known));
        let (_, value) =
            marks.find(|(known, _)| known.strip_prefix(DEAD_LETTER_PREFIX.as_bytes()) == Some(name.as_bytes()))?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let number = |name: &str| mark(name)?.parse::<u64>().ok();
    let small = |name: &str| number(name)?.try_into().ok();
    let mut letter = DeadLetter::because(mark("reason")?, Timestamp(number("last-at")?));
    (letter.id, letter.first_at) = (mark("id"), Timestamp(number("first-at")?));
    (letter.attempts, letter.deaths) = (small("attempts")?, small("deaths")?);
    Some(letter)
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
    const NAMES: [&str; 7] = ["reason", "id", "attempts", "first-at", "last-at", "deaths", "entry"];
    name.strip_prefix(DEAD_LETTER_PREFIX.as_bytes())
        .is_some_and(|rest| NAMES.iter().any(|known| rest == known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fields_of_a_dead_letter_are_reserved() {
        for (rest, is_reserved) in [("reason", true), ("entry", true), ("reasons", false), ("", false), ("x", false)] {
            let name = format!("{DEAD_LETTER_PREFIX}{rest}");
            assert_eq!(is_dead_letter_field(name.as_bytes()), is_reserved, "{name}");
        }
        assert!(!is_dead_letter_field(b"reason"));
    }
}
