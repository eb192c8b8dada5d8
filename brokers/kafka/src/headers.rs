//! Mapping between the headers of Kafka and the headers of a delivery.
use std::panic::{AssertUnwindSafe, catch_unwind};

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Headers};
use rdkafka::message::{Header, Headers as _, OwnedHeaders};

/// The prefix of headers of a producer that have the name of one of the adapter's headers.
const USER: &str = "idempotent-user-";

pub(crate) const ID: &str = "idempotent-id";
/// The business key of a message whose record key is its aggregate.
pub(crate) const KEY: &str = "idempotent-key";
/// The topic and the partition of a message in a retry topic or among the dead letters.
pub(crate) const TOPIC: &str = "idempotent-topic";
pub(crate) const PARTITION: &str = "idempotent-partition";
/// The record key of a message among the dead letters. Missing if the key is null.
pub(crate) const RECORD_KEY: &str = "idempotent-record-key";
/// Marks a message whose value is null.
pub(crate) const TOMBSTONE: &str = "idempotent-tombstone";
pub(crate) const ATTEMPT: &str = "idempotent-attempt";
pub(crate) const DUE: &str = "idempotent-due";
pub(crate) const FIRST_AT: &str = "idempotent-first-at";
pub(crate) const DEATHS: &str = "idempotent-deaths";
const REASON: &str = "idempotent-reason";
const LETTER: &str = "idempotent-letter";
const ATTEMPTS: &str = "idempotent-attempts";
const LAST_AT: &str = "idempotent-last-at";

const OWN: [&str; 14] = [
    ID, KEY, TOPIC, PARTITION, RECORD_KEY, TOMBSTONE, ATTEMPT, DUE, FIRST_AT, DEATHS, REASON, LETTER, ATTEMPTS, LAST_AT,
];

/// The headers of a received message: those of its producer, and those of the adapter.
#[derive(Debug, Default)]
pub(crate) struct ReceivedHeaders {
    pub(crate) plain: Headers,
    own: Vec<(&'static str, Vec<u8>)>,
}

impl ReceivedHeaders {
    /// Reads the headers of a message. Returns `None` if a name is not UTF-8, for which the client panics.
    pub(crate) fn read(headers: &OwnedHeaders) -> Option<Self> {
        let all = catch_unwind(AssertUnwindSafe(|| {
            let owned = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.unwrap_or_default().to_vec());
            headers.iter().map(owned).collect::<Vec<_>>()
        }));
        let mut read = Self::default();
        for (name, value) in all.ok()? {
            match OWN.iter().find(|own| **own == name) {
                Some(own) => read.own.push((own, value)),
                None => read.plain.push(name.strip_prefix(USER).unwrap_or(&name), value),
            }
        }
        Some(read)
    }

    /// Returns the last value of one of the adapter's headers.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.own.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| &**value)
    }

    /// Returns a text, or `None` if the header is missing, empty, or not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok().filter(|text| !text.is_empty())
    }

    /// Returns a number, or `None` if the header is missing or not a number.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.text(name)?.parse().ok()
    }

    /// Returns the data of a dead letter, or `None` if another program wrote the message.
    pub(crate) fn letter(&self) -> Option<DeadLetter> {
        let reason = std::str::from_utf8(self.bytes(REASON)?).ok()?.to_owned();
        let mut letter = DeadLetter::because(reason, Timestamp(self.number(LAST_AT)?));
        (letter.id, letter.first_at) = (self.text(LETTER).map(str::to_owned), Timestamp(self.number(FIRST_AT)?));
        (letter.attempts, letter.deaths) = (self.number(ATTEMPTS)?, self.number(DEATHS)?);
        Some(letter)
    }
}

/// The headers of a message to be produced.
#[derive(Debug)]
pub(crate) struct HeaderWriter(pub(crate) OwnedHeaders);

impl HeaderWriter {
    pub(crate) fn new() -> Self {
        Self(OwnedHeaders::new())
    }

    /// Copies the headers of the producer from a received message, byte for byte.
    pub(crate) fn copy(received: Option<&OwnedHeaders>) -> Self {
        let Some(received) = received else { return Self::new() };
        let kept = catch_unwind(AssertUnwindSafe(|| {
            let is_plain = |header: &Header<'_, &[u8]>| !OWN.contains(&header.key);
            let plain = received.iter().filter(is_plain);
            plain.fold(OwnedHeaders::new_with_capacity(received.count()), |headers, header| headers.insert(header))
        }));
        // With a name that is not UTF-8, all headers remain. The ones that are appended later take precedence.
        Self(kept.unwrap_or_else(|_| received.clone()))
    }

    /// Appends one of the adapter's headers.
    pub(crate) fn set(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        Self(self.0.insert(Header { key: name, value: Some(value.as_ref()) }))
    }

    /// Appends one of the adapter's headers, if there is a value.
    pub(crate) fn set_some(self, name: &str, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Appends the data of a dead letter.
    pub(crate) fn letter(self, letter: &DeadLetter) -> Self {
        self.set(REASON, letter.reason.as_bytes())
            .set_some(LETTER, letter.id.as_ref())
            .set(ATTEMPTS, letter.attempts.to_string())
            .set(FIRST_AT, letter.first_at.0.to_string())
            .set(LAST_AT, letter.last_at.0.to_string())
            .set(DEATHS, letter.deaths.to_string())
    }

    /// Appends headers of a producer. Returns `None` if Kafka cannot transmit a name.
    pub(crate) fn append(mut self, headers: &Headers) -> Option<Self> {
        for (name, value) in headers.iter() {
            if name.contains('\0') {
                return None;
            }
            let is_reserved = OWN.contains(&name) || name.starts_with(USER);
            self = if is_reserved { self.set(&format!("{USER}{name}"), value) } else { self.set(name, value) };
        }
        Some(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sent() -> Headers {
        let mut headers = Headers::default();
        for (name, value) in [
            ("trace", &b"00-abc"[..]),
            ("via", b"second"),
            ("gr\u{f6} \u{df}e", &[0, 255, 13, 10]),
            ("via", b"first"),
            ("nothing", b""),
            (DEATHS, b"9"),
            ("idempotent-user-x", b"x"),
        ] {
            headers.push(name, value);
        }
        headers
    }

    #[test]
    fn headers_arrive_as_they_were_sent_and_none_is_taken_for_one_of_the_adapter() {
        let written = HeaderWriter::new().append(&sent()).unwrap().set(ID, "m-1");
        let read = ReceivedHeaders::read(&written.0).unwrap();
        assert!(read.plain == sent());
        assert_eq!((read.text(ID), read.number::<u32>(DEATHS)), (Some("m-1"), None));
        let mut unsendable = Headers::default();
        unsendable.push("nul\0", "");
        assert!(HeaderWriter::new().append(&unsendable).is_none());
    }

    #[test]
    fn a_copy_keeps_the_headers_of_the_producer_and_has_new_ones_of_the_adapter() {
        let null = OwnedHeaders::new().insert(Header { key: "null", value: None::<&[u8]> });
        let first = HeaderWriter(null).append(&sent()).unwrap().set(ATTEMPT, "2").set(ID, "m-1");
        let mut letter = DeadLetter::because("two\r\nlines", Timestamp(9));
        (letter.attempts, letter.first_at, letter.deaths, letter.id) = (3, Timestamp(4), 2, Some("k:1".into()));
        let copy = HeaderWriter::copy(Some(&first.0)).set(ID, "m-1").letter(&letter);
        assert_eq!(copy.0.get(0), Header { key: "null", value: None });
        let read = ReceivedHeaders::read(&copy.0).unwrap();
        assert_eq!((read.letter(), read.text(ATTEMPT), read.text(ID)), (Some(letter), None, Some("m-1")));
        assert_eq!(read.plain.len(), sent().len() + 1);
    }

    #[test]
    fn damaged_headers_of_the_adapter_are_like_missing_ones() {
        let headers = [ID, DEATHS, ATTEMPT, REASON, LAST_AT]
            .iter()
            .fold(HeaderWriter::new(), |headers, name| headers.set(name, "7").set(name, [0xff]));
        let read = ReceivedHeaders::read(&headers.0).unwrap();
        assert_eq!((read.text(ID), read.number::<u32>(DEATHS), read.letter()), (None, None, None));
    }
}
