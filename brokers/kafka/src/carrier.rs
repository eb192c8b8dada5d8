//! Mapping between the headers of Kafka and the headers of a delivery.
use std::borrow::Cow;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use idempotent_mq::{Envelope, Field, Headers, MessagePlace, SourceError};
use rdkafka::message::{Header, Headers as ClientHeaders, OwnedHeaders};

use crate::error::fatal;

/// The prefix of headers of a producer that have the name of one of the adapter's headers.
const USER: &str = "idempotent-user-";

/// The prefix of the adapter's own headers.
const OWN: &str = "idempotent-";
/// The topic and the partition of a message in a retry topic or among the dead letters.
pub(crate) const TOPIC: Field = Field::Origin("topic");
pub(crate) const PARTITION: Field = Field::Origin("partition");
/// The record key of a message among the dead letters. Missing if the key is null.
pub(crate) const RECORD_KEY: Field = Field::Origin("record-key");
/// Marks a message whose value is null.
pub(crate) const TOMBSTONE: Field = Field::Origin("tombstone");
/// The parts of its message that a dead letter lacks, because a letter with them would be too large.
pub(crate) const OMITTED: Field = Field::Origin("omitted");
/// The topic, the partition and the offset of the record from which a dead letter was made.
pub(crate) const RECORD: Field = Field::Origin("record");
/// The last header of a copy whose producer wrote unreadable headers: the number of the adapter's headers before this one.
const TAIL: Field = Field::Origin("tail");

/// Returns the name of the header with a field.
pub(crate) fn name_of(field: Field) -> String {
    format!("{OWN}{}", field.name())
}

/// Returns the field that a header contains.
fn own(name: &str) -> Option<Field> {
    let name = name.strip_prefix(OWN)?;
    let origins = [TOPIC, PARTITION, RECORD_KEY, TOMBSTONE, OMITTED, RECORD, TAIL];
    Field::named(name).or_else(|| origins.into_iter().find(|origin| origin.name() == name))
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
    own: Vec<(Field, Vec<u8>)>,
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
        let tail =
            last.first().filter(|(name, _)| own(name) == Some(TAIL)).and_then(|(_, value)| number::<usize>(value));
        let start = tail.and_then(|own| count.checked_sub(own.checked_add(1)?));
        let all = names.read(headers, start.unwrap_or(0)..count);
        read.is_unreadable = start.is_some() || all.is_none();
        for (name, value) in all.unwrap_or_default() {
            match own(&name) {
                Some(field) if place.believes(field) => read.own.push((field, value)),
                Some(_) => {}
                None => read.plain.push(name.strip_prefix(USER).unwrap_or(&name), value),
            }
        }
        read
    }

    /// Returns the envelope of the message, which came from this place.
    pub(crate) fn envelope(&self, place: MessagePlace) -> Envelope {
        Envelope::read(place, |field| std::str::from_utf8(self.bytes(field)?).ok().map(Cow::Borrowed))
    }

    /// Returns the last value of a field.
    pub(crate) fn bytes(&self, field: Field) -> Option<&[u8]> {
        self.own.iter().rev().find(|(own, _)| *own == field).map(|(_, value)| &**value)
    }

    /// Returns a text, or `None` if the header is missing, empty, or not UTF-8.
    pub(crate) fn text(&self, field: Field) -> Option<&str> {
        text(self.bytes(field)?)
    }

    /// Returns a number, or `None` if the header is missing or not a number.
    pub(crate) fn number<N: std::str::FromStr>(&self, field: Field) -> Option<N> {
        number(self.bytes(field)?)
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
    /// True if the headers before the adapter's own ones are unreadable.
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
        self.headers.insert(Header { key: &name_of(TAIL), value: Some(&own) })
    }

    /// Appends the fields of an envelope.
    pub(crate) fn envelope(mut self, envelope: &Envelope) -> Self {
        envelope.write(|field, value| self = mem::take(&mut self).set(field, value.to_string()));
        self
    }

    /// Appends a field.
    pub(crate) fn set(mut self, field: Field, value: impl AsRef<[u8]>) -> Self {
        self.own += 1;
        self.insert(&name_of(field), value.as_ref())
    }

    /// Appends a field, if there is a value.
    pub(crate) fn set_some(self, field: Field, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            Some(value) => self.set(field, value),
            None => self,
        }
    }

    fn insert(mut self, key: &str, value: &[u8]) -> Self {
        self.headers = self.headers.insert(Header { key, value: Some(value) });
        self
    }

    /// Appends headers of a producer. Returns `None` if Kafka cannot transmit a name.
    pub(crate) fn append(mut self, headers: &Headers) -> Option<Self> {
        for (name, value) in headers.iter() {
            if name.contains('\0') {
                return None;
            }
            let is_reserved = own(name).is_some() || name.starts_with(USER);
            self = if is_reserved { self.insert(&format!("{USER}{name}"), value) } else { self.insert(name, value) };
        }
        Some(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use Field::{Attempt, Deaths, Id, LastAt, Reason};
    use MessagePlace::{DeadLetters, Queue, Retry};
    use idempotent_core::Timestamp;
    use idempotent_mq::{DeadLetter, Delivery, Position};

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
            ("idempotent-deaths", b"9"),
            ("idempotent-user-x", b"x"),
        ] {
            headers.push(name, value);
        }
        headers
    }

    fn dead() -> Envelope {
        let mut letter = DeadLetter::because("two\r\nlines", Timestamp(9));
        (letter.attempts, letter.first_at, letter.deaths, letter.id) = (3, Timestamp(4), 2, Some("k:1".into()));
        Envelope::of(&Delivery::new(Position::of("orders"), Vec::new()).id("m-1")).dead(&letter)
    }

    #[test]
    fn headers_arrive_as_they_were_sent_and_none_is_taken_for_one_of_the_adapter() {
        let written = HeaderWriter::default().append(&sent()).unwrap().set(Id, "m-1").finish();
        let read = read(&written, Queue);
        assert!(read.plain == sent());
        let envelope = read.envelope(Queue);
        assert_eq!((envelope.id.as_deref(), envelope.deaths), (Some("m-1"), 0));
        let mut unsendable = Headers::default();
        unsendable.push("nul\0", "");
        assert!(HeaderWriter::default().append(&unsendable).is_none());
    }

    #[test]
    fn a_copy_keeps_the_headers_of_the_producer_and_has_new_ones_of_the_adapter() {
        let null = OwnedHeaders::new().insert(Header { key: "null", value: None::<&[u8]> });
        let null = HeaderWriter { headers: null, ..HeaderWriter::default() };
        let first = null.append(&sent()).unwrap().set(Attempt, "2").set(Id, "m-1").finish();
        let dead = dead();
        let copy = HeaderWriter::copy(Some(&first), false).envelope(&dead).finish();
        assert_eq!(copy.get(0), Header { key: "null", value: None });
        let read = read(&copy, DeadLetters);
        assert_eq!((read.envelope(DeadLetters), read.text(Attempt)), (dead, None));
        assert_eq!(read.plain.len(), sent().len() + 1);
    }

    #[test]
    fn a_copy_of_unreadable_headers_has_readable_data_of_the_adapter_and_all_its_bytes() {
        let received = HeaderWriter::default().append(&sent()).unwrap().set(Attempt, "9").finish();
        let produced = received.count();
        let fresh = ReceivedHeaders::read(&Unreadable(received.clone(), produced), Queue, Names::Unknown);
        assert!(fresh.is_unreadable && fresh.plain.is_empty() && fresh.own.is_empty());
        let behind = ReceivedHeaders::read(&Unreadable(received.clone(), 1), Queue, Names::Unknown);
        assert!(behind.is_unreadable && behind.own.is_empty(), "a readable header at the end is no copy");
        let retry = HeaderWriter::copy(Some(&received), true).set(Id, "m-1").set(Attempt, "2").finish();
        // A further copy has the headers of the first one in front.
        let dead = HeaderWriter::copy(Some(&retry), true).set(TOPIC, "orders").envelope(&self::dead()).finish();
        let (at_retry, at_dead) = (Unreadable(retry, produced), Unreadable(dead.clone(), produced + 3));
        let read = |headers, place| ReceivedHeaders::read(headers, place, Names::Utf8);
        let (retry, dead_letter) = (read(&at_retry, Retry), read(&at_dead, DeadLetters));
        assert!(retry.is_unreadable && dead_letter.is_unreadable);
        let retried = retry.envelope(Retry);
        assert_eq!((retried.id.as_deref(), retried.attempt), (Some("m-1"), Some(2)));
        assert_eq!((dead_letter.envelope(DeadLetters), dead_letter.text(TOPIC)), (self::dead(), Some("orders")));
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
            let headers = HeaderWriter::default().insert("a", b"1").set(Id, "m-1").set(TAIL, tail).finish();
            let read = read(&headers, Queue);
            assert_eq!((read.is_unreadable, read.text(TOPIC)), (is_unreadable, None), "{tail}");
        }
    }

    #[test]
    fn headers_of_earlier_versions_are_read_where_they_are_believed() {
        let stored = [
            ("idempotent-id", "m-1"),
            ("idempotent-key", "order-17"),
            ("idempotent-first-at", "4"),
            ("idempotent-deaths", "2"),
            ("idempotent-attempt", "3"),
            ("idempotent-due", "8"),
            ("idempotent-reason", "no stock"),
            ("idempotent-letter", "k:1"),
            ("idempotent-attempts", "5"),
            ("idempotent-last-at", "9"),
            ("idempotent-topic", "orders"),
            ("idempotent-partition", "6"),
            ("idempotent-record-key", "k"),
            ("idempotent-tombstone", "true"),
            ("idempotent-omitted", "headers"),
            ("idempotent-record", "orders/6/1"),
        ];
        let stored = stored
            .iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(*value) }));
        let at = |place| read(&stored, place);
        let (queue, retry, dead) = (at(Queue).envelope(Queue), at(Retry).envelope(Retry), at(DeadLetters));
        assert_eq!((queue.id.as_deref(), queue.business_key.as_deref()), (Some("m-1"), Some("order-17")));
        assert_eq!((queue.first_at, queue.deaths, queue.attempt, queue.letter), (Some(Timestamp(4)), 2, None, None));
        assert_eq!((retry.attempt, retry.due), (Some(3), Some(Timestamp(8))));
        let letter = dead.envelope(DeadLetters).letter.unwrap();
        assert_eq!((&*letter.reason, letter.id.as_deref(), letter.attempts), ("no stock", Some("k:1"), 5));
        let origins = [TOPIC, PARTITION, RECORD_KEY, TOMBSTONE, OMITTED, RECORD];
        assert!(origins.iter().all(|origin| dead.text(*origin).is_some() && at(Queue).text(*origin).is_none()));
        assert!(at(DeadLetters).plain.is_empty());
    }

    #[test]
    fn damaged_headers_of_the_adapter_are_like_missing_ones() {
        let fields = [Id, Deaths, Attempt, Reason, LastAt].into_iter();
        let headers = fields.fold(HeaderWriter::default(), |headers, field| headers.set(field, "7").set(field, [0xff]));
        let read = read(&headers.finish(), DeadLetters);
        assert_eq!(read.envelope(DeadLetters), Envelope::default());
    }
}
