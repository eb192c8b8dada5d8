//! Mapping between the jsonb column `headers` and the headers of a delivery.
//!
//! Each header is a member of the object. The member `idempotent` is an object with the adapter's own data.
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent_mq::{Datum, DeadLetter, Delivery, Envelope, Field, Headers, MessagePlace, OutboundMessage, Retry};
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

    /// Returns the envelope of a message that was stored at this time. It is in the place of a retry if a settlement of that
    /// message has written it.
    pub(crate) fn envelope(&self, sent: i64) -> Envelope {
        let is_ours = self.own.get("sent").and_then(Value::as_i64) == Some(sent);
        let place = if is_ours { MessagePlace::Retry } else { MessagePlace::Queue };
        Envelope::read(place, |field| field.of_json(&self.own))
    }

    /// Returns true if the body is encoded.
    pub(crate) fn is_body_encoded(&self) -> bool {
        self.own.get("body").and_then(Value::as_str) == Some(crate::body::ENCODED)
    }

    /// Returns the data of a dead letter, or `None` if the data is missing or another program wrote the message.
    pub(crate) fn letter(&self) -> Option<DeadLetter> {
        Envelope::read(MessagePlace::DeadLetters, |field| field.of_json(&self.own)).letter
    }

    /// Returns the queue of a dead letter.
    pub(crate) fn queue(&self) -> Option<Cow<'_, str>> {
        QUEUE.of_json(&self.own)
    }
}

/// The queue of a dead letter.
const QUEUE: Field = Field::Origin("queue");
/// The identity of a death.
const DEATH: Field = Field::Origin("death");

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
    let envelope = Envelope::sent(message);
    for (name, value) in [("id", &envelope.id), ("key", &envelope.business_key)] {
        if value.as_ref().is_some_and(|value| value.contains('\0')) {
            return Err(name);
        }
    }
    envelope.write(|field, value| field.put_json(&mut own, value));
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

/// Returns the marks of a message that is retried, or returned to the queue without a retry.
pub(crate) fn release_marks(tag: &PgmqTag, retry: Option<&Retry>) -> String {
    let settled = u32::try_from(tag.settled).unwrap_or_default().saturating_add(1);
    let mut marks = Map::from_iter([("settled".to_owned(), settled.into()), ("sent".to_owned(), tag.sent.into())]);
    let attempt = retry.map_or(tag.attempt, |retry| retry.attempt);
    Field::Attempt.put_json(&mut marks, Datum::Number(attempt.into()));
    if let Some(retry) = retry {
        Field::FirstAt.put_json(&mut marks, Datum::Number(retry.first_at.0));
    }
    Value::Object(marks).to_string()
}

/// Returns the marks of a dead letter. `death` identifies the death of this message.
pub(crate) fn letter_marks(delivery: &Delivery, letter: &DeadLetter, death: &str) -> String {
    let mut marks = Map::new();
    let mut envelope = Envelope::of(delivery).dead(letter);
    // The message keeps its own one.
    envelope.business_key = None;
    envelope.write(|field, value| match value {
        // jsonb cannot store U+0000.
        Datum::Text(text) => field.put_json(&mut marks, Datum::Text(&text.replace('\0', "\u{fffd}"))),
        number => field.put_json(&mut marks, number),
    });
    QUEUE.put_json(&mut marks, Datum::Text(&delivery.position.source));
    DEATH.put_json(&mut marks, Datum::Text(death));
    Value::Object(marks).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::Timestamp;
    use idempotent_mq::Position;

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
        let envelope = stored.envelope(0);
        assert_eq!((envelope.id.as_deref(), envelope.deaths, stored.is_body_encoded()), (Some("m-1"), 0, true));
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
            assert!(stored.headers.is_empty() && stored.letter().is_none(), "{column:?}");
            assert_eq!(stored.envelope(0), Envelope::default(), "{column:?}");
        }
    }

    #[test]
    fn columns_of_earlier_versions_are_read_and_written_again() {
        let retried = r#"{"idempotent":{"attempt":3,"first_at":4,"id":"m-1","key":"order-17","sent":77,"settled":2}}"#;
        let stored = StoredHeaders::parse(Some(retried));
        let (ours, others) = (stored.envelope(77), stored.envelope(78));
        assert_eq!((ours.id.as_deref(), ours.business_key.as_deref()), (Some("m-1"), Some("order-17")));
        assert_eq!((ours.attempt, ours.first_at, others.attempt), (Some(3), Some(Timestamp(4)), None));
        let tag = PgmqTag { id: 1, reads: 2, settled: 1, attempt: 2, sent: 77 };
        let mut retry = Retry::after(std::time::Duration::ZERO, Timestamp(4));
        retry.attempt = 3;
        let marks = |retry| serde_json::from_str::<Value>(&release_marks(&tag, retry)).unwrap();
        assert_eq!(marks(Some(&retry)), json!({"attempt": 3, "first_at": 4, "sent": 77, "settled": 2}));
        assert_eq!(marks(None), json!({"attempt": 2, "sent": 77, "settled": 2}));

        let dead = json!({"id": "m-1", "first_at": 4, "deaths": 2, "letter": {"queue": "orders", "death": "1/2/m-1",
            "reason": "no stock", "id": "k:1", "attempts": 5, "last_at": 9}});
        let stored = StoredHeaders::parse(Some(&json!({ "idempotent": dead }).to_string()));
        let letter = stored.letter().unwrap();
        assert_eq!((letter.attempts, letter.deaths, stored.queue().as_deref()), (5, 2, Some("orders")));
        let delivery = Delivery::new(Position::of("orders"), Vec::new()).id("m-1").business_key("order-17");
        let marks = letter_marks(&delivery, &letter, "1/2/m-1");
        assert_eq!(serde_json::from_str::<Value>(&marks).unwrap(), dead);
    }
}
