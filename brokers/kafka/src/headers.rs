//! Mapping between the headers of Kafka and the headers of a delivery.
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Headers, MessagePlace, OwnData, SourceError};
use rdkafka::message::{Header, Headers as ClientHeaders, OwnedHeaders};

use crate::error::fatal;

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
/// The parts of its message that a dead letter lacks, because a letter with them would be too large.
pub(crate) const OMITTED: &str = "idempotent-omitted";
/// The topic, the partition and the offset of the record from which a dead letter was made.
pub(crate) const RECORD: &str = "idempotent-record";
pub(crate) const ATTEMPT: &str = "idempotent-attempt";
pub(crate) const DUE: &str = "idempotent-due";
pub(crate) const FIRST_AT: &str = "idempotent-first-at";
pub(crate) const DEATHS: &str = "idempotent-deaths";
const REASON: &str = "idempotent-reason";
const LETTER: &str = "idempotent-letter";
const ATTEMPTS: &str = "idempotent-attempts";
const LAST_AT: &str = "idempotent-last-at";
/// The last header of a copy whose producer wrote unreadable headers: the number of the adapter's headers before this one.
const TAIL: &str = "idempotent-tail";

/// The headers of the adapter, with the kind of their data.
const OWN: [(&str, OwnData); 17] = [
    (ID, OwnData::Identity),
    (KEY, OwnData::Identity),
    (TAIL, OwnData::Identity),
    (FIRST_AT, OwnData::History),
    (DEATHS, OwnData::History),
    (ATTEMPT, OwnData::Attempt),
    (DUE, OwnData::Attempt),
    (TOPIC, OwnData::Origin),
    (PARTITION, OwnData::Origin),
    (RECORD_KEY, OwnData::Origin),
    (TOMBSTONE, OwnData::Origin),
    (OMITTED, OwnData::Origin),
    (RECORD, OwnData::Origin),
    (REASON, OwnData::Letter),
    (LETTER, OwnData::Letter),
    (ATTEMPTS, OwnData::Letter),
    (LAST_AT, OwnData::Letter),
];

fn own(name: &str) -> Option<(&'static str, OwnData)> {
    OWN.into_iter().find(|(own, _)| *own == name)
}

/// True in a program in which a panic ends the process.
pub(crate) const ABORTS: bool = cfg!(panic = "abort");

/// The knowledge of the names of headers before they are read.
///
/// The client reads a header by one call, which panics for a name that is not UTF-8. No other safe call shows whether a name is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Names {
    /// A producer may have written any bytes.
    Unknown,
    /// All names are UTF-8.
    Utf8,
}

impl Names {
    /// Returns what the operator states, in a program that a panic ends or does not.
    ///
    /// # Errors
    /// `Fatal`: a panic ends the program, and the names may be any bytes.
    pub(crate) fn stated(are_utf8: bool, aborts: bool) -> Result<Self, SourceError> {
        match (aborts, are_utf8) {
            (false, _) => Ok(Self::Unknown),
            (true, true) => Ok(Self::Utf8),
            (true, false) => {
                let text = "with `panic = \"abort\"`, a header name that is not UTF-8 would end the process; build with \
                            `panic = \"unwind\"`, or call `utf8_header_names` if no producer writes such a name";
                Err(fatal("checking the settings", text))
            }
        }
    }

    /// Reads some of the headers. Returns `None` if the client cannot represent them.
    fn read(self, headers: &impl ClientHeaders, at: Range<usize>) -> Option<Vec<(String, Vec<u8>)>> {
        let owned = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.unwrap_or_default().to_vec());
        let read = || at.clone().filter_map(|at| headers.try_get(at).map(owned)).collect();
        match self {
            Self::Utf8 => Some(read()),
            Self::Unknown if at.is_empty() => Some(Vec::new()),
            // The panic would end the process.
            Self::Unknown if ABORTS => None,
            Self::Unknown => catch_unwind(AssertUnwindSafe(read)).ok(),
        }
    }
}

/// The headers of a received message: those of its producer, and those of the adapter.
#[derive(Debug, Default)]
pub(crate) struct ReceivedHeaders {
    /// The headers of the producer. Empty if they are unreadable.
    pub(crate) plain: Headers,
    /// The headers of the adapter that the place of the message believes.
    own: Vec<(&'static str, Vec<u8>)>,
    /// True if the client cannot represent the headers of the producer.
    pub(crate) is_unreadable: bool,
}

impl ReceivedHeaders {
    /// Reads the headers of a message in this place.
    ///
    /// A copy of a message with unreadable headers is read from its end, where only the adapter wrote.
    pub(crate) fn read(headers: &impl ClientHeaders, place: MessagePlace, names: Names) -> Self {
        let count = headers.count();
        let mut read = Self::default();
        let Some(last) = names.read(headers, count.saturating_sub(1)..count) else {
            read.is_unreadable = true;
            return read;
        };
        let tail = last.first().filter(|(name, _)| name == TAIL).and_then(|(_, value)| number::<usize>(value));
        let start = tail.and_then(|own| count.checked_sub(own.checked_add(1)?));
        let all = names.read(headers, start.unwrap_or(0)..count);
        read.is_unreadable = start.is_some() || all.is_none();
        for (name, value) in all.unwrap_or_default() {
            match own(&name) {
                Some((name, data)) if place.believes(data) => read.own.push((name, value)),
                Some(_) => {}
                None => read.plain.push(name.strip_prefix(USER).unwrap_or(&name), value),
            }
        }
        read
    }

    /// Returns the last value of one of the adapter's headers.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.own.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| &**value)
    }

    /// Returns a text, or `None` if the header is missing, empty, or not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        text(self.bytes(name)?)
    }

    /// Returns a number, or `None` if the header is missing or not a number.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        number(self.bytes(name)?)
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

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| !text.is_empty())
}

fn number<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    text(value)?.parse().ok()
}

/// The headers of a message to be produced.
#[derive(Debug, Default)]
pub(crate) struct HeaderWriter {
    headers: OwnedHeaders,
    /// The number of the adapter's headers.
    own: usize,
    /// True if the headers before those of the adapter are unreadable.
    is_unreadable: bool,
}

impl HeaderWriter {
    /// Copies the headers of the producer from a received message, byte for byte.
    pub(crate) fn copy(received: Option<&OwnedHeaders>, is_unreadable: bool) -> Self {
        let Some(received) = received else { return Self::default() };
        let headers = match is_unreadable {
            // The client copies them without reading them. Earlier headers of the adapter remain, too.
            true => received.clone(),
            false => {
                let plain = received.iter().filter(|header| own(header.key).is_none());
                plain.fold(OwnedHeaders::new_with_capacity(received.count()), |headers, header| headers.insert(header))
            }
        };
        Self { headers, own: 0, is_unreadable }
    }

    /// Returns the headers.
    pub(crate) fn finish(self) -> OwnedHeaders {
        if !self.is_unreadable {
            return self.headers;
        }
        let own = self.own.to_string();
        self.headers.insert(Header { key: TAIL, value: Some(&own) })
    }

    /// Appends one of the adapter's headers.
    pub(crate) fn set(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers = self.headers.insert(Header { key: name, value: Some(value.as_ref()) });
        self.own += 1;
        self
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
            let is_reserved = own(name).is_some() || name.starts_with(USER);
            self = if is_reserved { self.set(&format!("{USER}{name}"), value) } else { self.set(name, value) };
        }
        Some(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use MessagePlace::{DeadLetters, Queue, Retry};

    use super::*;

    /// Headers of a client that panics for the names of the first ones, as it does for a name that is not UTF-8.
    struct Unreadable(OwnedHeaders, usize);

    impl ClientHeaders for Unreadable {
        fn count(&self) -> usize {
            self.0.count()
        }

        fn try_get(&self, at: usize) -> Option<Header<'_, &[u8]>> {
            assert!(at >= self.1, "a name that is not UTF-8");
            self.0.try_get(at)
        }
    }

    fn read(headers: &OwnedHeaders, place: MessagePlace) -> ReceivedHeaders {
        ReceivedHeaders::read(headers, place, Names::Unknown)
    }

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

    fn letter() -> DeadLetter {
        let mut letter = DeadLetter::because("two\r\nlines", Timestamp(9));
        (letter.attempts, letter.first_at, letter.deaths, letter.id) = (3, Timestamp(4), 2, Some("k:1".into()));
        letter
    }

    #[test]
    fn headers_arrive_as_they_were_sent_and_none_is_taken_for_one_of_the_adapter() {
        let written = HeaderWriter::default().append(&sent()).unwrap().set(ID, "m-1").finish();
        let read = read(&written, Queue);
        assert!(read.plain == sent());
        assert_eq!((read.text(ID), read.number::<u32>(DEATHS)), (Some("m-1"), None));
        let mut unsendable = Headers::default();
        unsendable.push("nul\0", "");
        assert!(HeaderWriter::default().append(&unsendable).is_none());
    }

    #[test]
    fn a_copy_keeps_the_headers_of_the_producer_and_has_new_ones_of_the_adapter() {
        let null = OwnedHeaders::new().insert(Header { key: "null", value: None::<&[u8]> });
        let null = HeaderWriter { headers: null, ..HeaderWriter::default() };
        let first = null.append(&sent()).unwrap().set(ATTEMPT, "2").set(ID, "m-1").finish();
        let letter = letter();
        let copy = HeaderWriter::copy(Some(&first), false).set(ID, "m-1").letter(&letter).finish();
        assert_eq!(copy.get(0), Header { key: "null", value: None });
        let read = read(&copy, DeadLetters);
        assert_eq!((read.letter(), read.text(ATTEMPT), read.text(ID)), (Some(letter), None, Some("m-1")));
        assert_eq!(read.plain.len(), sent().len() + 1);
    }

    #[test]
    fn a_copy_of_unreadable_headers_has_readable_data_of_the_adapter_and_all_its_bytes() {
        let received = HeaderWriter::default().append(&sent()).unwrap().set(ATTEMPT, "9").finish();
        let produced = received.count();
        let fresh = ReceivedHeaders::read(&Unreadable(received.clone(), produced), Queue, Names::Unknown);
        assert!(fresh.is_unreadable && fresh.plain.is_empty() && fresh.own.is_empty());
        let behind = ReceivedHeaders::read(&Unreadable(received.clone(), 1), Queue, Names::Unknown);
        assert!(behind.is_unreadable && behind.own.is_empty(), "a readable header at the end is no copy");
        let retry = HeaderWriter::copy(Some(&received), true).set(ID, "m-1").set(ATTEMPT, "2").finish();
        // A further copy has the headers of the first one in front.
        let letter = letter();
        let dead = HeaderWriter::copy(Some(&retry), true).set(ID, "m-1").set(TOPIC, "orders").letter(&letter).finish();
        let (at_retry, at_dead) = (Unreadable(retry, produced), Unreadable(dead.clone(), produced + 3));
        let read = |headers, place| ReceivedHeaders::read(headers, place, Names::Utf8);
        let (retry, dead_letter) = (read(&at_retry, Retry), read(&at_dead, DeadLetters));
        assert!(retry.is_unreadable && dead_letter.is_unreadable);
        assert_eq!((retry.text(ID), retry.number::<u32>(ATTEMPT)), (Some("m-1"), Some(2)));
        assert_eq!((dead_letter.letter(), dead_letter.text(TOPIC)), (Some(letter), Some("orders")));
        assert!((0..produced).all(|at| dead.get(at) == received.get(at)));
    }

    #[test]
    fn a_program_that_a_panic_ends_reads_no_names_that_nobody_vouches_for() {
        assert!(matches!(Names::stated(false, false), Ok(Names::Unknown)));
        assert!(matches!(Names::stated(true, false), Ok(Names::Unknown)));
        assert!(matches!(Names::stated(true, true), Ok(Names::Utf8)));
        let error = Names::stated(false, true).unwrap_err();
        assert!(error.to_string().contains("`utf8_header_names`"), "{error}");
    }

    #[test]
    fn a_forged_end_of_the_headers_is_read_like_any_other() {
        for (tail, is_unreadable) in
            [("0", true), ("2", true), ("3", false), ("-1", false), ("18446744073709551615", false)]
        {
            let headers = HeaderWriter::default().set("a", "1").set(ID, "m-1").set(TAIL, tail).finish();
            let read = read(&headers, Queue);
            assert_eq!((read.is_unreadable, read.text(TOPIC)), (is_unreadable, None), "{tail}");
        }
    }

    #[test]
    fn a_producer_decides_neither_the_attempt_nor_the_topic_nor_the_reason() {
        let all = OWN.iter().fold(HeaderWriter::default(), |headers, (name, _)| headers.set(name, "7"));
        // The name of the last one has another meaning.
        let all = all.set("plain", "").finish();
        let known = |place| {
            let read = read(&all, place);
            OWN.iter().map(|(name, _)| *name).filter(|name| read.bytes(name).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(known(Queue), [ID, KEY, TAIL, FIRST_AT, DEATHS]);
        let retry =
            [ID, KEY, TAIL, FIRST_AT, DEATHS, ATTEMPT, DUE, TOPIC, PARTITION, RECORD_KEY, TOMBSTONE, OMITTED, RECORD];
        assert_eq!(known(Retry), retry);
        let dead = known(DeadLetters);
        assert!(!dead.contains(&ATTEMPT) && !dead.contains(&DUE) && read(&all, DeadLetters).letter().is_some());
    }

    #[test]
    fn damaged_headers_of_the_adapter_are_like_missing_ones() {
        let headers = [ID, DEATHS, ATTEMPT, REASON, LAST_AT]
            .iter()
            .fold(HeaderWriter::default(), |headers, name| headers.set(name, "7").set(name, [0xff]));
        let read = read(&headers.finish(), DeadLetters);
        assert_eq!((read.text(ID), read.number::<u32>(DEATHS), read.letter()), (None, None, None));
    }
}
