//! Conversion of messages into deliveries, and of deliveries into copies.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::{DeadLetter, Delivery, OutboundMessage, Position, PublishError, PublishErrorKind, Retry};
use rdkafka::message::{BorrowedMessage, Message, OwnedHeaders};

use crate::headers::{
    ATTEMPT, DEATHS, DUE, FIRST_AT, HeaderWriter, ID, KEY, PARTITION, RECORD_KEY, ReceivedHeaders, TOMBSTONE, TOPIC,
};
use crate::place::PartitionName;

/// The parts of a message that a delivery cannot contain, for copies that equal the message.
#[derive(Debug)]
pub(crate) struct Original {
    key: Option<Vec<u8>>,
    is_tombstone: bool,
    headers: Option<OwnedHeaders>,
    /// The topic and the partition to which the producer sent the message.
    topic: Arc<str>,
    partition: i32,
    business_key: Option<String>,
    /// The position and the time of the message, which no other message has.
    name: String,
}

/// A message to be produced.
#[derive(Debug)]
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
        let headers = HeaderWriter::new().append(&message.headers).ok_or_else(|| {
            PublishError::new(PublishErrorKind::Refused, "a header name contains a NUL character; remove it")
        })?;
        let business_key = message.business_key.as_ref().filter(|_| message.aggregate.is_some());
        Ok(Self {
            key: record_key.map(|key| key.clone().into_bytes()),
            body: Some(message.body.clone()),
            headers: headers.set(ID, &message.id).set_some(KEY, business_key).0,
            partition: None,
        })
    }
}

/// Converts a message. The third part is the time before which a message of a retry topic is not delivered.
pub(crate) fn convert(message: &BorrowedMessage<'_>, name: &PartitionName) -> (Delivery, Original, Option<Instant>) {
    let headers = message.headers().map(rdkafka::message::BorrowedHeaders::detach);
    let own = headers.as_ref().and_then(ReceivedHeaders::read).unwrap_or_default();
    let time = message.timestamp().to_millis().unwrap_or_default();
    let (topic, number, offset) = (&name.topic, name.number, message.offset());
    let position = Position::of(topic.clone()).partition(u32::try_from(number).unwrap_or_default()).offset(offset);
    let mut delivery = Delivery::new(position, message.payload().unwrap_or_default().to_vec());
    let origin = format!("{topic}/{number}/{offset}-{time}");
    delivery.id = Some(own.text(ID).map_or_else(|| origin.clone(), str::to_owned));
    let record_key = message.key().and_then(|key| std::str::from_utf8(key).ok());
    let business_key = own.text(KEY).map(str::to_owned);
    delivery.business_key = business_key.clone().or_else(|| record_key.map(str::to_owned));
    delivery.attempt = Some(own.number(ATTEMPT).unwrap_or(1));
    delivery.first_at = own.number(FIRST_AT).map(Timestamp);
    delivery.deaths = own.number(DEATHS).unwrap_or(0);
    let due = own.number(DUE).map(Timestamp).and_then(instant_of);
    let original = Original {
        key: message.key().map(<[u8]>::to_vec),
        is_tombstone: message.payload().is_none(),
        topic: own.text(TOPIC).map_or_else(|| topic.clone(), Into::into),
        partition: own.number(PARTITION).unwrap_or(number),
        headers,
        business_key,
        name: origin,
    };
    delivery.headers = own.plain;
    if original.is_tombstone {
        delivery.headers.push(TOMBSTONE, "true");
    }
    (delivery, original, due)
}

/// Returns the instant of a time, or `None` if the time has passed.
fn instant_of(time: Timestamp) -> Option<Instant> {
    let left = time.0.checked_sub(SystemClock::new().wall().0)?;
    Instant::now().checked_add(Duration::from_micros(left))
}

impl Original {
    /// Returns the headers of a copy, without those of a retry or a dead letter.
    fn headers(&self, delivery: &Delivery) -> HeaderWriter {
        HeaderWriter::copy(self.headers.as_ref())
            .set_some(ID, delivery.id.as_ref())
            .set_some(KEY, self.business_key.as_ref())
            .set(TOPIC, self.topic.as_bytes())
            .set(PARTITION, self.partition.to_string())
    }

    fn body(&self, delivery: &Delivery) -> Option<Vec<u8>> {
        (!self.is_tombstone).then(|| delivery.body.clone())
    }

    /// Returns the copy for a retry topic.
    pub(crate) fn retry(&self, delivery: &Delivery, retry: &Retry) -> Copy {
        let after = u64::try_from(retry.after.as_micros()).unwrap_or(u64::MAX);
        let due = SystemClock::new().wall().0.saturating_add(after);
        let headers = self
            .headers(delivery)
            .set(ATTEMPT, retry.attempt.to_string())
            .set(FIRST_AT, retry.first_at.0.to_string())
            .set(DEATHS, delivery.deaths.to_string())
            .set(DUE, due.to_string());
        Copy { key: self.key.clone(), body: self.body(delivery), headers: headers.0, partition: None }
    }

    /// Returns the copy for the dead letters of a group. Copies of one letter have the same record key.
    pub(crate) fn dead_letter(&self, delivery: &Delivery, letter: &DeadLetter, group: &str) -> Copy {
        let headers = self
            .headers(delivery)
            .set_some(RECORD_KEY, self.key.as_ref())
            .set_some(TOMBSTONE, self.is_tombstone.then_some("true"))
            .letter(letter);
        // A null value would remove the letter.
        let body = Some(delivery.body.clone());
        let key = format!("{group}/{}", self.name).into_bytes();
        Copy { key: Some(key), body, headers: headers.0, partition: None }
    }
}

/// A message among the dead letters.
#[derive(Debug)]
pub(crate) struct Letter {
    /// The record key, which identifies the letter.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) delivery: Delivery,
    pub(crate) letter: Option<DeadLetter>,
    /// The topic of the message, and the message to put back. `None` if another program wrote the letter.
    back: Option<(String, i32, Option<Vec<u8>>)>,
    headers: OwnedHeaders,
    business_key: Option<String>,
    is_tombstone: bool,
}

impl Letter {
    pub(crate) fn read(message: &BorrowedMessage<'_>) -> Self {
        let name = PartitionName { topic: message.topic().into(), number: message.partition() };
        let (mut delivery, original, _) = convert(message, &name);
        let headers = original.headers.unwrap_or_default();
        let own = ReceivedHeaders::read(&headers).unwrap_or_default();
        let record_key = own.bytes(RECORD_KEY).map(<[u8]>::to_vec);
        let text = record_key.as_ref().and_then(|key| String::from_utf8(key.clone()).ok());
        delivery.business_key = original.business_key.clone().or(text);
        let is_tombstone = own.text(TOMBSTONE).is_some();
        if is_tombstone {
            delivery.headers.push(TOMBSTONE, "true");
        }
        let back = own.text(TOPIC).map(str::to_owned).zip(own.number(PARTITION));
        Self {
            key: original.key,
            letter: own.letter(),
            back: back.map(|(topic, partition)| (topic, partition, record_key)),
            business_key: original.business_key,
            is_tombstone,
            delivery,
            headers,
        }
    }

    /// Returns the topic and the message that puts this letter back, with its headers, its record key and its partition.
    pub(crate) fn put_back(&self) -> Option<(&str, Copy)> {
        let (topic, partition, key) = self.back.as_ref()?;
        let headers = HeaderWriter::copy(Some(&self.headers))
            .set_some(ID, self.delivery.id.as_ref())
            .set_some(KEY, self.business_key.as_ref())
            .set_some(FIRST_AT, self.delivery.first_at.map(|at| at.0.to_string()))
            .set(DEATHS, self.delivery.deaths.to_string());
        let body = (!self.is_tombstone).then(|| self.delivery.body.clone());
        Some((topic, Copy { key: key.clone(), body, headers: headers.0, partition: Some(*partition) }))
    }
}

/// Returns the record without a value that removes a letter.
pub(crate) fn removal(key: Vec<u8>) -> Copy {
    Copy { key: Some(key), body: None, headers: OwnedHeaders::new(), partition: None }
}
