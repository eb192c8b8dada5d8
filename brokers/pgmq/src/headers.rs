//! Mapping between the jsonb column `headers` and the headers of a delivery.
//!
//! Each header is a member of the object. The member `idempotent` is an object with the adapter's own data.
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Delivery, Headers, MessagePlace, OutboundMessage, OwnData, Retry};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::PgmqTag;

/// The member with the adapter's own data.
const OWN: &str = "idempotent";

/// The headers of a stored message.
#[derive(Debug, Default)]
pub(crate) struct StoredHeaders {
    pub(crate) headers: Headers,
    own: Map<String, Value>,
}

impl StoredHeaders {
    /// Parses the column. Headers that are no object are one header with an empty name, and other data that cannot be read is left out.
    pub(crate) fn parse(column: Option<&str>) -> Self {
        let column = column.filter(|text| *text != "null");
        let parsed = column.map(|text| {
            let all = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text);
            all.or_else(|_| Ok::<_, serde_json::Error>([(String::new(), serde_json::from_str(text)?)].into()))
        });
        let (mut all, mut own) = (parsed.and_then(Result::ok).unwrap_or_default(), Map::new());
        if let Some(value) = all.remove(OWN) {
            own = serde_json::from_str(value.get()).unwrap_or_default();
        }
        let mut headers = Headers::default();
        for (name, value) in all {
            for value in values(value.get()) {
                headers.push(name.clone(), value);
            }
        }
        for encoded in own.get("headers").and_then(Value::as_array).into_iter().flatten() {
            if let Some((name, value)) = decoded(encoded) {
                headers.push(name, value);
            }
        }
        Self { headers, own }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.own.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn number<N: TryFrom<u64>>(&self, name: &str) -> Option<N> {
        number(&self.own, name)
    }

    /// Returns the number of the attempt, if a settlement of the message that was stored at this time has written it.
    pub(crate) fn attempt(&self, sent: i64) -> Option<u32> {
        let is_ours = self.own.get("sent")?.as_i64() == Some(sent);
        let place = if is_ours { MessagePlace::Retry } else { MessagePlace::Queue };
        place.believes(OwnData::Attempt).then(|| self.number("attempt")).flatten()
    }

    pub(crate) fn time(&self, name: &str) -> Option<Timestamp> {
        self.number(name).map(Timestamp)
    }

    /// Returns the data of a dead letter, or `None` if the data is missing or another program wrote the message.
    pub(crate) fn letter(&self) -> Option<DeadLetter> {
        let stored = self.own.get("letter")?.as_object()?;
        let reason = stored.get("reason")?.as_str()?.to_owned();
        let mut letter = DeadLetter::because(reason, Timestamp(number(stored, "last_at")?));
        letter.id = stored.get("id").and_then(Value::as_str).map(str::to_owned);
        letter.attempts = number(stored, "attempts")?;
        (letter.first_at, letter.deaths) = (self.time("first_at")?, self.number("deaths")?);
        Some(letter)
    }

    /// Returns the queue of a dead letter.
    pub(crate) fn queue(&self) -> Option<&str> {
        self.own.get("letter")?.get("queue")?.as_str()
    }
}

fn number<N: TryFrom<u64>>(object: &Map<String, Value>, name: &str) -> Option<N> {
    object.get(name)?.as_u64()?.try_into().ok()
}

/// Returns the values of one member: the text of a string, several values for a list of strings, and otherwise the JSON text.
fn values(json: &str) -> Vec<Vec<u8>> {
    if let Ok(text) = serde_json::from_str::<String>(json) {
        return vec![text.into_bytes()];
    }
    match serde_json::from_str::<Vec<String>>(json) {
        Ok(all) if !all.is_empty() => all.into_iter().map(String::into_bytes).collect(),
        _ => vec![json.as_bytes().to_vec()],
    }
}

fn decoded(encoded: &Value) -> Option<(String, Vec<u8>)> {
    let part = |at: usize| BASE64.decode(encoded.get(at)?.as_str()?).ok();
    Some((String::from_utf8(part(0)?).ok()?, part(1)?))
}

/// Returns the column for a message that is sent.
///
/// # Errors
/// The name of the field that contains the character U+0000, which jsonb cannot store.
pub(crate) fn sent(message: &OutboundMessage, body_is_encoded: bool) -> Result<String, &'static str> {
    let (mut all, mut encoded) = (Map::new(), Vec::new());
    let names: BTreeSet<&str> = message.headers.iter().map(|(name, _)| name).collect();
    for name in names {
        match plain(name, &message.headers) {
            Some(value) => drop(all.insert(name.to_owned(), value)),
            // All values of one name are encoded, so that they keep their order.
            None => encoded
                .extend(message.headers.all(name).map(|value| json!([BASE64.encode(name), BASE64.encode(value)]))),
        }
    }
    let mut own = Map::new();
    for (name, value) in [("id", Some(&message.id)), ("key", message.business_key.as_ref())] {
        let Some(value) = value else { continue };
        if value.contains('\0') {
            return Err(name);
        }
        own.insert(name.to_owned(), value.as_str().into());
    }
    if body_is_encoded {
        own.insert("body".to_owned(), crate::body::ENCODED.into());
    }
    if !encoded.is_empty() {
        own.insert("headers".to_owned(), encoded.into());
    }
    all.insert(OWN.to_owned(), own.into());
    Ok(Value::Object(all).to_string())
}

/// Returns the member for a header: a string, or a list of strings. Returns `None` if the received header would differ.
fn plain(name: &str, headers: &Headers) -> Option<Value> {
    if name == OWN || name.contains('\0') {
        return None;
    }
    let text = |value| std::str::from_utf8(value).ok().filter(|text| !text.contains('\0'));
    let mut texts: Vec<&str> = headers.all(name).map(text).collect::<Option<_>>()?;
    Some(if texts.len() == 1 { texts.remove(0).into() } else { texts.into() })
}

/// Returns the marks of a message that is retried.
pub(crate) fn retry_marks(tag: &PgmqTag, retry: &Retry) -> String {
    json!({ "attempt": retry.attempt, "first_at": retry.first_at.0, "settled": settlements(tag), "sent": tag.sent })
        .to_string()
}

/// Returns the marks of a message that is returned to the queue.
pub(crate) fn return_marks(tag: &PgmqTag) -> String {
    json!({ "attempt": tag.attempt, "settled": settlements(tag), "sent": tag.sent }).to_string()
}

/// Returns the number of settlements after this one.
fn settlements(tag: &PgmqTag) -> u32 {
    u32::try_from(tag.settled).unwrap_or_default().saturating_add(1)
}

/// Returns the marks of a dead letter. `death` identifies the death of this message.
pub(crate) fn letter_marks(delivery: &Delivery, letter: &DeadLetter, death: &str) -> String {
    // jsonb cannot store U+0000.
    let text = |text: &str| text.replace('\0', "\u{fffd}");
    json!({
        "id": delivery.id.as_deref().map(text),
        "first_at": letter.first_at.0,
        "deaths": letter.deaths,
        "letter": {
            "queue": &*delivery.position.source,
            "death": death,
            "reason": text(&letter.reason),
            "id": letter.id.as_deref().map(text),
            "attempts": letter.attempts,
            "last_at": letter.last_at.0,
        },
    })
    .to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn by_name(headers: &Headers) -> Vec<(&str, &[u8])> {
        let mut all: Vec<_> = headers.iter().collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }

    #[test]
    fn headers_arrive_as_they_were_sent_and_none_is_taken_for_the_adapters_own() {
        let message = OutboundMessage::new("orders", "m-1", "")
            .header("via", "second")
            .header("trace", "00-abc")
            .header("via", "first")
            .header("raw", [0, 255])
            .header("raw", "text")
            .header("nul\0", "x")
            .header("nothing", "")
            .header("idempotent", "{\"deaths\": 9}");
        let stored = StoredHeaders::parse(Some(&sent(&message, true).unwrap()));
        assert_eq!(by_name(&stored.headers), by_name(&message.headers));
        assert_eq!((stored.text("id"), stored.text("body")), (Some("m-1"), Some("base64")));
        assert_eq!(stored.number::<u32>("deaths"), None);
        assert_eq!(sent(&OutboundMessage::new("orders", "m\0", ""), false), Err("id"));
    }

    #[test]
    fn headers_of_other_producers_are_readable_whatever_they_contain() {
        let column =
            r#"{"n": 12345678901234567890.10, "tags": ["a", "b"], "mixed": ["a", 1], "none": [], "idempotent": 7}"#;
        let stored = StoredHeaders::parse(Some(column));
        let expected: [(&str, &[u8]); 5] = [
            ("mixed", b"[\"a\", 1]"),
            ("n", b"12345678901234567890.10"),
            ("none", b"[]"),
            ("tags", b"a"),
            ("tags", b"b"),
        ];
        assert_eq!(by_name(&stored.headers), expected);
        for (column, value) in [("[1]", "[1]"), ("7.50", "7.50"), (r#""text""#, "text")] {
            assert_eq!(by_name(&StoredHeaders::parse(Some(column)).headers), [("", value.as_bytes())]);
        }
        let damaged = r#"{"idempotent": {"headers": ["%", ["AA"], [1, 2]], "id": 5, "deaths": -1, "letter": {}}}"#;
        for column in [None, Some("null"), Some("{}"), Some(damaged)] {
            let stored = StoredHeaders::parse(column);
            assert!(
                stored.headers.is_empty() && stored.letter().is_none() && stored.text("id").is_none(),
                "{column:?}"
            );
        }
    }
}
