//! Conversion of messages into deliveries, and of deliveries into copies.
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::__private::start_of;
use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::{
    DeadLetter, Delivery, Envelope, Field, MessagePlace, OutboundMessage, Position, PublishError, PublishErrorKind,
    Retry,
};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Message, OwnedHeaders};

use crate::carrier::{
    ABORTS, HeaderWriter, Names, OMITTED, PARTITION, RECORD, RECORD_KEY, ReceivedHeaders, TOMBSTONE, TOPIC, name_of,
};
use crate::place::PartitionName;

/// The parts of a message that a delivery cannot contain, for copies that equal the message.
#[derive(Debug)]
pub(crate) struct Original {
    key: Option<Vec<u8>>,
    is_tombstone: bool,
    headers: Option<OwnedHeaders>,
    is_unreadable: bool,
    /// The topic and the partition to which the producer sent the message.
    topic: Arc<str>,
    partition: i32,
    business_key: Option<String>,
    /// The topic, the partition and the offset of this record.
    record: String,
    /// The position and the time of the message, which no other message has.
    name: String,
}

/// The parts of a message that its dead letter has. The next form is smaller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LetterForm {
    Whole,
    WithoutHeaders,
    /// Only the place of the message in the log.
    Reference,
}

impl LetterForm {
    pub(crate) const ALL: [Self; 3] = [Self::Whole, Self::WithoutHeaders, Self::Reference];

    /// Returns the parts that the letter lacks.
    pub(crate) fn omitted(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::WithoutHeaders => Some("headers"),
            Self::Reference => Some("headers, record key and body"),
        }
    }
}

/// The maximum length of the name of a topic.
pub(crate) const LONGEST_NAME: usize = 249;
/// The reason of a message that no handler gets.
const UNREADABLE: &str =
    "a header has a name that is not UTF-8, which the client cannot read; the message keeps its headers";
/// The maximum size of a reason and of an id in a letter that lacks a part.
const SHORT: usize = 1_000;

/// A message to be produced.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) headers: OwnedHeaders,
    /// The partition, or `None` for one that depends on the key.
    pub(crate) partition: Option<i32>,
}

impl Copy {
    /// Converts a message of a publisher.
    ///
    /// # Errors
    /// `Refused`: the message has `deliver_at`, or Kafka cannot transmit the name of a header.
    pub(crate) fn of(message: &OutboundMessage) -> Result<Self, PublishError> {
        if message.deliver_at.is_some() {
            return Err(PublishError::cannot_delay());
        }
        let record_key = message.aggregate.as_ref().or(message.business_key.as_ref());
        let headers = HeaderWriter::default().append(&message.headers).ok_or_else(|| {
            PublishError::new(PublishErrorKind::Refused, "a header name contains a NUL character; remove it")
        })?;
        let mut envelope = Envelope::sent(message);
        envelope.business_key = envelope.business_key.filter(|_| message.aggregate.is_some());
        Ok(Self {
            key: record_key.map(|key| key.clone().into_bytes()),
            body: Some(message.body.clone()),
            headers: headers.envelope(&envelope).finish(),
            partition: None,
        })
    }
}

/// Converts a message. The third part contains the headers of the adapter.
pub(crate) fn convert(
    message: &BorrowedMessage<'_>,
    name: &PartitionName,
    place: MessagePlace,
    names: Names,
) -> (Delivery, Original, ReceivedHeaders) {
    let headers = message.headers().map(BorrowedHeaders::detach);
    let own = headers.as_ref().map(|headers| ReceivedHeaders::read(headers, place, names));
    let mut own = own.unwrap_or_default();
    let time = message.timestamp().to_millis().unwrap_or_default();
    let (topic, number, offset) = (&name.topic, name.number, message.offset());
    let position = Position::of(topic.clone()).partition(u32::try_from(number).unwrap_or_default()).offset(offset);
    let mut delivery = Delivery::new(position, message.payload().unwrap_or_default().to_vec());
    let record = format!("{topic}/{number}/{offset}");
    let origin = format!("{record}-{time}");
    delivery.id = Some(origin.clone());
    delivery.business_key = message.key().and_then(|key| std::str::from_utf8(key).ok()).map(str::to_owned);
    let envelope = own.envelope(place);
    let business_key = envelope.business_key.clone();
    envelope.open(&mut delivery);
    let original = Original {
        key: message.key().map(<[u8]>::to_vec),
        is_tombstone: message.payload().is_none(),
        topic: own.text(TOPIC).map_or_else(|| topic.clone(), Into::into),
        partition: own.number(PARTITION).unwrap_or(number),
        headers,
        is_unreadable: own.is_unreadable,
        business_key,
        record,
        name: origin,
    };
    delivery.headers = std::mem::take(&mut own.plain);
    delivery.unreadable = own.is_unreadable.then_some(Cow::Borrowed(UNREADABLE));
    if original.is_tombstone {
        delivery.headers.push(name_of(TOMBSTONE), "true");
    }
    (delivery, original, own)
}

/// Returns the time before which a message of a retry topic is not delivered, or `None` if it has passed.
pub(crate) fn due(own: &ReceivedHeaders) -> Option<Instant> {
    own.number(Field::Due).map(Timestamp).and_then(instant_of)
}

/// Returns the instant of a time, or `None` if the time has passed.
fn instant_of(time: Timestamp) -> Option<Instant> {
    let left = time.0.checked_sub(SystemClock::new().wall().0)?;
    Instant::now().checked_add(Duration::from_micros(left))
}

impl Original {
    /// Appends the headers that each copy has to those of the producer.
    fn headers(&self, from: HeaderWriter, envelope: &Envelope) -> HeaderWriter {
        from.envelope(envelope).set(TOPIC, self.topic.as_bytes()).set(PARTITION, self.partition.to_string())
    }

    fn produced(&self) -> HeaderWriter {
        HeaderWriter::copy(self.headers.as_ref(), self.is_unreadable)
    }

    fn body(&self, delivery: &Delivery) -> Option<Vec<u8>> {
        (!self.is_tombstone).then(|| delivery.body.clone())
    }

    /// Returns the copy for a retry topic.
    pub(crate) fn retry(&self, delivery: &Delivery, retry: &Retry) -> Copy {
        let after = u64::try_from(retry.after.as_micros()).unwrap_or(u64::MAX);
        let mut envelope = Envelope::of(delivery).retried(retry);
        envelope.business_key.clone_from(&self.business_key);
        envelope.due = Some(Timestamp(SystemClock::new().wall().0.saturating_add(after)));
        let headers = self.headers(self.produced(), &envelope);
        Copy { key: self.key.clone(), body: self.body(delivery), headers: headers.finish(), partition: None }
    }

    /// Returns the copy for the dead letters of a group. Copies of one letter have the same record key.
    pub(crate) fn dead_letter(&self, delivery: &Delivery, letter: &DeadLetter, group: &str, form: LetterForm) -> Copy {
        let mut envelope = Envelope::of(delivery).dead(letter);
        envelope.business_key.clone_from(&self.business_key);
        if let (Some(omitted), Some(letter)) = (form.omitted(), &mut envelope.letter) {
            let reason = start_of(&letter.reason, SHORT);
            letter.reason =
                format!("{reason}; the letter lacks the {omitted} of its message: it would be too large").into();
        }
        let produced = if form == LetterForm::Whole { self.produced() } else { HeaderWriter::default() };
        let (headers, body) = match form {
            LetterForm::Whole | LetterForm::WithoutHeaders => {
                let headers = self.headers(produced, &envelope);
                (headers.set_some(RECORD_KEY, self.key.as_ref()), delivery.body.clone())
            }
            LetterForm::Reference => {
                envelope.id = envelope.id.filter(|id| id.len() <= SHORT);
                envelope.business_key = None;
                (self.headers(produced, &envelope), Vec::new())
            }
        };
        let headers = headers
            .set_some(TOMBSTONE, self.is_tombstone.then_some("true"))
            .set_some(OMITTED, form.omitted())
            .set_some(RECORD, form.omitted().map(|_| &self.record));
        // A null value would remove the letter.
        let body = Some(body);
        let key = format!("{group}/{}", self.name).into_bytes();
        Copy { key: Some(key), body, headers: headers.finish(), partition: None }
    }
}

/// A message among the dead letters.
#[derive(Debug)]
pub struct Letter {
    /// The record key, which identifies the letter.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) delivery: Delivery,
    pub(crate) letter: Option<DeadLetter>,
    /// The topic of the message. `None` if another program wrote the letter.
    pub(crate) topic: Option<String>,
    partition: Option<i32>,
    record_key: Option<Vec<u8>>,
    /// The record that contains the body, if the letter lacks it.
    pub(crate) record: Option<(PartitionName, i64)>,
    headers: OwnedHeaders,
    /// True if the client cannot read the headers of the producer.
    pub(crate) is_unreadable: bool,
    business_key: Option<String>,
    is_tombstone: bool,
}

impl Letter {
    pub(crate) fn read(message: &BorrowedMessage<'_>) -> Self {
        let name = PartitionName { topic: message.topic().into(), number: message.partition() };
        // Only another program writes other names after a record key of this form.
        let names = if ABORTS && message.key().is_some_and(is_own) { Names::Utf8 } else { Names::Unknown };
        let (mut delivery, original, own) = convert(message, &name, MessagePlace::DeadLetters, names);
        let topic = own.text(TOPIC).filter(|topic| topic.len() <= LONGEST_NAME).map(str::to_owned);
        // Other programs leave the record key as it was.
        let record_key = if topic.is_some() { own.bytes(RECORD_KEY) } else { original.key.as_deref() };
        let record_key = record_key.map(<[u8]>::to_vec);
        let text = record_key.as_ref().and_then(|key| String::from_utf8(key.clone()).ok());
        delivery.business_key = original.business_key.clone().or(text);
        let is_tombstone = own.text(TOMBSTONE).is_some();
        if is_tombstone {
            delivery.headers.push(name_of(TOMBSTONE), "true");
        }
        let lacks_body = own.text(OMITTED).is_some_and(|omitted| Some(omitted) == LetterForm::Reference.omitted());
        Self {
            key: original.key,
            letter: own.envelope(MessagePlace::DeadLetters).letter,
            topic,
            partition: own.number(PARTITION),
            record_key,
            record: own.text(RECORD).filter(|_| lacks_body).and_then(record),
            headers: original.headers.unwrap_or_default(),
            is_unreadable: original.is_unreadable,
            business_key: original.business_key,
            is_tombstone,
            delivery,
        }
    }

    /// Returns the message that puts this letter back, with its headers, its record key and its partition.
    pub(crate) fn put_back(&self, headers: HeaderWriter) -> Copy {
        let body = (!self.is_tombstone).then(|| self.delivery.body.clone());
        let headers = self.revived(headers, self.business_key.as_ref());
        Copy { key: self.record_key.clone(), body, headers, partition: self.partition }
    }

    /// Returns the message that puts this letter back, from the record that contains its body.
    pub(crate) fn put_record_back(&self, record: &BorrowedMessage<'_>) -> Copy {
        let name = PartitionName { topic: record.topic().into(), number: record.partition() };
        let (delivery, original, _) = convert(record, &name, MessagePlace::Queue, Names::Unknown);
        let headers = self.revived(original.produced(), original.business_key.as_ref());
        Copy { body: original.body(&delivery), key: original.key, headers, partition: self.partition }
    }

    /// Returns the headers of the producer.
    pub(crate) fn produced(&self) -> HeaderWriter {
        HeaderWriter::copy(Some(&self.headers), self.is_unreadable)
    }

    fn revived(&self, headers: HeaderWriter, business_key: Option<&String>) -> OwnedHeaders {
        let mut envelope = Envelope::of(&self.delivery);
        envelope.business_key = business_key.cloned();
        headers.envelope(&envelope).finish()
    }
}

/// Returns whether a record key has the form of the adapter: `GROUP/TOPIC/PARTITION/OFFSET-TIME`.
fn is_own(key: &[u8]) -> bool {
    let text = std::str::from_utf8(key).ok();
    text.and_then(|text| text.rsplit_once('-')).is_some_and(|(place, time)| {
        time.parse::<i64>().is_ok() && record(place).is_some_and(|(name, _)| name.topic.contains('/'))
    })
}

/// Reads `TOPIC/PARTITION/OFFSET`.
fn record(text: &str) -> Option<(PartitionName, i64)> {
    let (partition, offset) = text.rsplit_once('/')?;
    let (topic, number) = partition.rsplit_once('/')?;
    Some((PartitionName { topic: topic.into(), number: number.parse().ok()? }, offset.parse().ok()?))
}

/// Returns the record without a value that removes a letter.
pub(crate) fn removal(key: Vec<u8>) -> Copy {
    Copy { key: Some(key), body: None, headers: OwnedHeaders::new(), partition: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_key_of_an_own_letter_names_group_topic_partition_offset_and_time() {
        assert!(is_own(b"group/orders/3/17-1700000000000"));
        for other in
            ["", "orders/3/17-1700000000000", "group/orders/3/17", "group/orders/3/17-now", "group/orders/x/17-1"]
        {
            assert!(!is_own(other.as_bytes()), "{other}");
        }
    }
}
