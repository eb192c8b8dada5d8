//! Mapping between the headers of NATS and the headers of a delivery.
use std::borrow::Cow;
use std::str::FromStr;

use async_nats::StatusCode;
use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use idempotent_mq::{Datum, DeadLetter, Delivery, Envelope, Field, Headers, MessagePlace, Position};

use crate::number::MessageNumber;

/// The header in which producers set the id of a message. The server drops a message whose id it has seen within the duplicate
/// window of the stream.
pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The beginning of the first line of headers, which may also contain a status.
const VERSION: &str = "NATS/1.0";
/// The prefix of headers that control the server.
const CONTROL: &str = "Nats-";

/// The time at which the server delivers a delayed message, and the subject of the message then.
const SCHEDULE: &str = "Nats-Schedule";
const SCHEDULE_TARGET: &str = "Nats-Schedule-Target";
/// The headers that the server adds to a message that was delayed, and the value of the second one if the message comes only once.
const SCHEDULER: &str = "Nats-Scheduler";
const SCHEDULE_NEXT: &str = "Nats-Schedule-Next";
const NO_NEXT: &str = "purge";

/// The prefix of the adapter's own headers.
const OWN: &str = "Idempotent-";
/// A header that NATS cannot transmit: name and value in Base64, separated by a colon.
const ENCODED: &str = "Idempotent-Encoded";
/// The subject of a message among the dead letters.
const SUBJECT: Field = Field::Origin("subject");
/// The message that a dead letter refers to, because its copy would be too large.
const ORIGINAL: Field = Field::Origin("original");

/// Returns the part of a name that names a field of the adapter.
fn own(name: &HeaderName) -> Option<&str> {
    let name: &str = name.as_ref();
    name.strip_prefix(OWN)
}

/// Returns the name of a field's header. NATS compares names byte for byte, and writes each word with a capital letter.
fn name(field: Field) -> String {
    let words = field.name().split('-').map(|word| format!("{}{}", word[..1].to_ascii_uppercase(), &word[1..]));
    format!("{OWN}{}", words.collect::<Vec<_>>().join("-"))
}

/// Returns the text of a field.
fn field(headers: &HeaderMap, field: Field) -> Option<Cow<'_, str>> {
    let text = headers.get(&*name(field))?.as_str();
    match field {
        Field::Reason => String::from_utf8(BASE64.decode(text).ok()?).ok().map(Cow::Owned),
        _ => Some(Cow::Borrowed(text)),
    }
}

/// The headers of a message to be published.
#[derive(Debug, Default)]
pub(crate) struct HeaderWriter(pub(crate) HeaderMap);

impl HeaderWriter {
    /// Sets a header. A value that NATS cannot transmit is left out.
    fn set(&mut self, name: &str, value: &str) {
        if let Some((name, value)) = plain(name, value.as_bytes()) {
            self.0.insert(name, value);
        }
    }

    /// Sets a field.
    pub(crate) fn set_field(&mut self, field: Field, value: &str) {
        self.set(&name(field), value);
    }

    /// Sets the fields of an envelope.
    pub(crate) fn envelope(&mut self, envelope: &Envelope) {
        envelope.write(|field, value| match (field, value) {
            // A reason may contain line breaks.
            (Field::Reason, Datum::Text(reason)) => self.set_field(field, &BASE64.encode(reason)),
            (field, value) => self.set_field(field, &value.to_string()),
        });
    }

    /// Sets the id by which the server recognizes a message that is sent again.
    pub(crate) fn message_id(&mut self, id: &str) {
        self.set(MESSAGE_ID, id);
    }

    /// Sets the headers of a message that the server stores under this subject at a time. The server removes the header of the id then, so another
    /// header contains the id, too.
    pub(crate) fn schedule(&mut self, id: &str, subject: &str, schedule: &str) {
        self.set_field(Field::Id, id);
        self.set(SCHEDULE, schedule);
        self.set(SCHEDULE_TARGET, subject);
    }

    /// Appends headers. Those that NATS cannot transmit, or would misinterpret, are encoded with all values of their name, so
    /// that these keep their order.
    pub(crate) fn append(&mut self, headers: &Headers) {
        let transmits = |name: &str| !is_reserved(name) && headers.all(name).all(|value| plain(name, value).is_some());
        for (name, value) in headers.iter() {
            match plain(name, value).filter(|_| transmits(name)) {
                Some((name, value)) => self.0.append(name, value),
                None => {
                    let encoded = format!("{}:{}", BASE64.encode(name), BASE64.encode(value));
                    self.0.append(ENCODED, encoded);
                }
            }
        }
    }

    /// Sets the message that a dead letter refers to.
    pub(crate) fn original(&mut self, origin: &str) {
        self.set_field(ORIGINAL, origin);
    }

    /// Returns the number of bytes that the headers take up in a message.
    pub(crate) fn len(&self) -> usize {
        let lines = self.0.iter().flat_map(|(name, values)| {
            let name: &str = name.as_ref();
            values.iter().map(|value| name.len() + value.as_str().len() + ": \r\n".len())
        });
        "NATS/1.0\r\n\r\n".len() + lines.sum::<usize>()
    }

    /// Sets the data of a dead letter.
    pub(crate) fn letter(&mut self, delivery: &Delivery, letter: &DeadLetter) {
        self.envelope(&Envelope::of(delivery).dead(letter));
        self.set_field(SUBJECT, &delivery.position.source);
    }

    /// Copies the headers of a dead letter for the message that is put back.
    pub(crate) fn put_back(&mut self, letter: &HeaderMap) {
        let field = |name: &str| {
            let origins = [SUBJECT, ORIGINAL].into_iter();
            Field::named(name).or_else(|| origins.into_iter().find(|origin| origin.name() == name))
        };
        let is_left_out = |name: &HeaderName| {
            let field = own(name).and_then(|name| field(&name.to_ascii_lowercase()));
            field.is_some_and(|field| !MessagePlace::Queue.believes(field))
        };
        for (name, values) in letter.iter().filter(|(name, _)| !is_left_out(name)) {
            for value in values {
                self.0.append(name.clone(), value.clone());
            }
        }
    }
}

/// Returns a header as NATS transmits it, or `None` if the received header would differ.
fn plain(name: &str, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let value = std::str::from_utf8(value).ok().filter(|value| value.trim() == *value)?;
    Some((HeaderName::from_str(name).ok()?, HeaderValue::from_str(value).ok()?))
}

/// Returns whether the client can represent these headers, as the server stores them.
///
/// The client also accepts a value of several lines, which is no message of the protocol.
pub(crate) fn is_representable(stored: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(stored) else { return false };
    let mut lines = text.lines();
    let is_status = |line: &str| {
        let status = line.strip_prefix(VERSION).map(|status| status.trim().split(' ').next().unwrap_or_default());
        status.is_some_and(|status| status.is_empty() || status.parse::<StatusCode>().is_ok())
    };
    let is_header =
        |line: &str| line.split_once(':').is_some_and(|(name, value)| plain(name, value.trim().as_bytes()).is_some());
    lines.next().is_some_and(is_status) && lines.all(|line| line.is_empty() || is_header(line))
}

/// Parses headers as the server stores them: those that the client can represent, and the others. A line without a name in UTF-8 is a
/// header with an empty name.
pub(crate) fn parsed(stored: &[u8]) -> (HeaderMap, Headers) {
    let (mut map, mut others) = (HeaderMap::new(), Headers::default());
    let lines = stored.split(|byte| *byte == b'\n').skip(1).map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    for line in lines.filter(|line| !line.is_empty()) {
        let parts = line.iter().position(|byte| *byte == b':').map(|at| (&line[..at], line[at + 1..].trim_ascii()));
        let named = parts.and_then(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)));
        match named.map(|(name, value)| (name, value, plain(name, value))) {
            Some((_, _, Some((name, value)))) => map.append(name, value),
            Some((name, value, None)) => others.push(name, value),
            None => others.push("", line),
        }
    }
    (map, others)
}

fn is_reserved(name: &str) -> bool {
    [CONTROL, OWN].iter().any(|prefix| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)))
}

/// Creates a delivery. `origin` is the id of a message whose producer set none.
pub(crate) fn delivery(
    subject: &str,
    sequence: u64,
    headers: Option<&HeaderMap>,
    body: Vec<u8>,
    origin: impl FnOnce() -> String,
) -> Delivery {
    let mut delivery = Delivery::new(Position::of(subject).offset(sequence), body);
    let message_id = || headers?.get(MESSAGE_ID).map(|id| id.as_str().to_owned()).filter(|id| !id.is_empty());
    let mut envelope = Envelope::read(MessagePlace::Queue, |field| self::field(headers?, field));
    let id = envelope.id.take().or_else(message_id).unwrap_or_else(origin);
    envelope.open(&mut delivery);
    delivery.id = Some(id);
    delivery.headers = headers.map(decode).unwrap_or_default();
    delivery
}

/// Returns the headers without the adapter's own and those of a delay, sorted by name.
fn decode(map: &HeaderMap) -> Headers {
    let mut all: Vec<(String, Vec<u8>)> = Vec::with_capacity(map.len());
    let was_delayed = map.get(SCHEDULE_NEXT).is_some_and(|next| next.as_str() == NO_NEXT);
    for (name, values) in map.iter() {
        let name: &str = name.as_ref();
        if was_delayed && [SCHEDULER, SCHEDULE_NEXT].contains(&name) {
            continue;
        }
        for value in values {
            if name == ENCODED {
                all.extend(decoded(value.as_str()));
            } else if name != MESSAGE_ID && !name.starts_with(OWN) {
                all.push((name.to_owned(), value.as_str().as_bytes().to_vec()));
            }
        }
    }
    // The client returns the names in a random order.
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all.into_iter().collect()
}

fn decoded(text: &str) -> Option<(String, Vec<u8>)> {
    let (name, value) = text.split_once(':')?;
    Some((String::from_utf8(BASE64.decode(name).ok()?).ok()?, BASE64.decode(value).ok()?))
}

/// Returns the data of a dead letter, or `None` if the headers are missing or another program wrote the message.
pub(crate) fn letter(headers: &HeaderMap) -> Option<DeadLetter> {
    Envelope::read(MessagePlace::DeadLetters, |field| self::field(headers, field)).letter
}

/// Removes the headers that control the server.
pub(crate) fn without_control(headers: HeaderMap) -> HeaderMap {
    let mut left = HeaderMap::new();
    for (name, values) in headers.iter().filter(|(name, _)| !name.to_string().starts_with(CONTROL)) {
        for value in values {
            left.append(name.clone(), value.clone());
        }
    }
    left
}

/// Returns the message that a dead letter refers to: its stream and its number.
pub(crate) fn original_of(headers: &HeaderMap) -> Option<(String, MessageNumber)> {
    let original = field(headers, ORIGINAL)?;
    let (stream, number) = original.split_once('/')?;
    Some((stream.to_owned(), MessageNumber::parse(number)?))
}

/// Returns the subject of the message of a dead letter.
pub(crate) fn original_subject(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    field(headers, SUBJECT)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::Timestamp;

    use super::*;

    fn sent() -> Headers {
        let mut headers = Headers::default();
        for (name, value) in [
            ("trace", &b"00-abc"[..]),
            ("via", b"second"),
            ("via", b" padded "),
            ("gr\u{f6} \u{df}e", &[0, 255, 13, 10]),
            ("nothing", b""),
            ("Nats-Rollup", b"all"),
            ("idempotent-deaths", b"9"),
        ] {
            headers.push(name, value);
        }
        headers
    }

    fn sorted(headers: &Headers) -> Vec<(String, Vec<u8>)> {
        let mut all: Vec<_> = headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    #[test]
    fn headers_arrive_as_they_were_sent_and_none_controls_the_server_or_the_adapter() {
        let mut writer = HeaderWriter::default();
        writer.append(&sent());
        assert!(writer.0.iter().all(|(name, _)| !name.to_string().starts_with(CONTROL)), "{:?}", writer.0);
        let delivery = delivery("orders", 7, Some(&writer.0), Vec::new(), || "S/7".into());
        assert_eq!(sorted(&delivery.headers), sorted(&sent()));
        assert_eq!((delivery.id.as_deref(), delivery.deaths), (Some("S/7"), 0));
    }

    #[test]
    fn the_headers_of_a_delay_are_hidden_and_those_of_a_repeated_message_are_not() {
        let mut writer = HeaderWriter::default();
        writer.message_id("m-1");
        writer.schedule("m-1", "orders.new", "@at 2027-01-01T00:00:00Z");
        let names = ["Nats-Msg-Id", "Idempotent-Id", "Nats-Schedule", "Nats-Schedule-Target"];
        assert!(writer.0.len() == 4 && names.iter().all(|name| writer.0.get(*name).is_some()), "{:?}", writer.0);
        for (next, left) in [("purge", 1), ("2027-01-02T00:00:00Z", 3)] {
            let mut received = HeaderMap::new();
            for (name, value) in
                [("Idempotent-Id", "m-1"), ("Nats-Scheduler", "x"), ("Nats-Schedule-Next", next), ("trace", "00")]
            {
                received.insert(name, value);
            }
            let delivery = delivery("orders.new", 7, Some(&received), Vec::new(), || "S/7".into());
            assert_eq!((delivery.id.as_deref(), delivery.headers.len()), (Some("m-1"), left), "{next}");
        }
    }

    #[test]
    fn a_letter_that_is_put_back_keeps_id_headers_and_history_and_loses_control_headers() {
        let mut original = HeaderMap::new();
        original.insert(MESSAGE_ID, "m-1");
        original.insert("Nats-TTL", "5s");
        let received = delivery("orders.eu", 7, Some(&original), b"body".to_vec(), || "S/7".into());
        let mut dead = DeadLetter::because("two\r\nlines", Timestamp(9));
        (dead.attempts, dead.first_at, dead.deaths, dead.id) = (3, Timestamp(4), 2, Some("k:1".into()));
        let mut writer = HeaderWriter::default();
        writer.message_id("S/7/2");
        writer.append(&received.headers);
        writer.letter(&received, &dead);
        assert_eq!(letter(&writer.0), Some(dead));
        assert_eq!(original_subject(&writer.0).as_deref(), Some("orders.eu"));
        assert_eq!(writer.0.get("Nats-TTL"), None, "the dead letter would expire");

        let mut back = HeaderWriter::default();
        back.put_back(&without_control(writer.0));
        assert_eq!((back.0.get(MESSAGE_ID), letter(&back.0)), (None, None));
        let again = delivery("orders.eu", 8, Some(&back.0), b"body".to_vec(), || "S/8".into());
        assert_eq!((again.id.as_deref(), again.deaths, again.first_at), (Some("m-1"), 2, Some(Timestamp(4))));
        assert_eq!(again.headers.first("Nats-TTL"), Some(&b"5s"[..]));
    }
    #[test]
    fn headers_of_earlier_versions_are_read() {
        let mut stored = HeaderMap::new();
        for (name, value) in [
            ("Nats-Msg-Id", "S/7/2"),
            ("Idempotent-Id", "m-1"),
            ("Idempotent-Key", "order-17"),
            ("Idempotent-First-At", "4"),
            ("Idempotent-Deaths", "2"),
            ("Idempotent-Reason", "bm8gc3RvY2s"),
            ("Idempotent-Letter", "k:1"),
            ("Idempotent-Attempts", "5"),
            ("Idempotent-Last-At", "9"),
            ("Idempotent-Subject", "orders.eu"),
            ("Idempotent-Original", "S/7-5"),
        ] {
            stored.insert(name, value);
        }
        let read = delivery("dead", 7, Some(&stored), Vec::new(), String::new);
        assert_eq!((read.id.as_deref(), read.business_key.as_deref()), (Some("m-1"), Some("order-17")));
        assert_eq!((read.first_at, read.deaths, read.headers.len()), (Some(Timestamp(4)), 2, 0));
        let letter = letter(&stored).unwrap();
        assert_eq!((&*letter.reason, letter.id.as_deref(), letter.attempts), ("no stock", Some("k:1"), 5));
        assert_eq!((letter.last_at, original_subject(&stored).as_deref()), (Timestamp(9), Some("orders.eu")));
        assert_eq!(original_of(&stored).map(|(stream, number)| (stream, number.sequence)), Some(("S".to_owned(), 7)));
        let mut again = HeaderWriter::default();
        again.letter(&delivery("orders.eu", 7, Some(&stored), Vec::new(), String::new), &letter);
        let rewritten = again.0.iter().all(|(name, values)| stored.get(name.clone()) == values.first());
        assert!(rewritten, "{:?}", again.0);
    }
}
