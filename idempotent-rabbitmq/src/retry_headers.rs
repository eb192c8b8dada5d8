//! Headers in which the adapter stores the state of a message. Their names begin with `x-idempotent-`.
mod broker_headers;
mod dead_letter;

use std::collections::BTreeMap;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Delivery, Position, Retry};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::Queue;
use crate::headers::{headers, number};

pub(crate) use self::dead_letter::{letter, properties_back};

type Table = BTreeMap<ShortString, AMQPValue>;

/// A message of a producer, and the state that earlier deliveries stored in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageState {
    properties: BasicProperties,
    /// The headers of the producer, without those of this adapter and of the broker.
    pub(crate) headers: FieldTable,
    pub(crate) attempt: Option<u32>,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) deaths: u32,
    /// The number of deliveries of this copy. The process that makes a copy is alive, so crashes count in full, and
    /// repeated deferrals do not count as crashes.
    pub(crate) delivered: u32,
    pub(crate) expires_at: Option<Timestamp>,
    /// The property `expiration` in ms. The broker removes it from messages that wait for a delay.
    expiration: Option<String>,
    /// The property `user_id`. The broker refuses a copy that names another user than the connection's.
    user: Option<String>,
}

/// The sources of a message's end of validity, besides its `expiration`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpirySource {
    pub(crate) header: Option<String>,
    /// True if `timestamp` is the time of publication, from which `expiration` counts.
    pub(crate) by_timestamp: bool,
}

const PREFIX: &str = "x-idempotent-";
const ATTEMPT: &str = "x-idempotent-attempt";
const FIRST_AT: &str = "x-idempotent-first-at";
const LAST_AT: &str = "x-idempotent-last-at";
const ATTEMPTS: &str = "x-idempotent-attempts";
const DEATHS: &str = "x-idempotent-deaths";
const REASON: &str = "x-idempotent-reason";
const ID: &str = "x-idempotent-id";
const QUEUE: &str = "x-idempotent-queue";
const EXPIRES_AT: &str = "x-idempotent-expires-at";
const EXPIRATION: &str = "x-idempotent-expiration";
const USER: &str = "x-idempotent-user-id";
/// The prefix for headers that would change the routing of a copy.
const KEPT: &str = "x-idempotent-kept-";
/// Headers that affect the routing. The broker also routes a message to the queues that `CC` and `BCC` name, which a
/// copy must not repeat. By `x-death`, the broker drops a message that returns to a queue without a client, as copies
/// do.
const ACTED_ON: [&str; 3] = ["CC", "BCC", "x-death"];
const LONGEST_REASON: usize = 1024;

impl MessageState {
    /// Reads a message. `now` is the time of the delivery.
    pub(crate) fn read(properties: BasicProperties, queue: &Queue, end: &ExpirySource, now: Timestamp) -> Self {
        let mut theirs: Table = properties.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
        let redeliveries = broker_headers::take_headers(&mut theirs, queue);
        let ours = theirs.split_off(PREFIX);
        let mut marks = RetryHeaders::default();
        for (name, value) in ours {
            match name.as_str().strip_prefix(KEPT) {
                Some(kept) => drop(theirs.insert(kept.into(), value)),
                None if name.as_str().starts_with(PREFIX) => drop(marks.0.insert(name, value)),
                // The name follows the prefix in alphabetical order.
                None => drop(theirs.insert(name, value)),
            }
        }
        let text = |property: &Option<ShortString>| property.as_ref().map(ToString::to_string);
        let expiration = text(properties.expiration()).or_else(|| marks.text(EXPIRATION));
        let first_at = marks.number(FIRST_AT).map(Timestamp);
        let expires_at = marks.number(EXPIRES_AT).map(Timestamp);
        let expires_at = expires_at.or_else(|| until(&theirs, end.header.as_deref()?));
        Self {
            attempt: marks.small(ATTEMPT),
            deaths: marks.small(DEATHS).unwrap_or_default(),
            delivered: redeliveries.saturating_add(1),
            expires_at: expires_at.or_else(|| expiry(&properties, end.by_timestamp, first_at.unwrap_or(now))),
            user: text(properties.user_id()).or_else(|| marks.text(USER)),
            headers: theirs.into(),
            properties,
            first_at,
            expiration,
        }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.properties.message_id().as_ref().map(ShortString::as_str)
    }

    /// Creates the delivery, as far as the message determines it.
    pub(crate) fn delivery(&self, position: Position, body: Vec<u8>) -> Delivery {
        let mut delivery = Delivery::new(position, body);
        delivery.id = self.id().map(str::to_owned);
        delivery.headers = headers(&self.headers);
        delivery.attempt = Some(self.attempt.unwrap_or(1));
        delivery.expires_at = self.expires_at;
        delivery.first_at = self.first_at;
        delivery.deaths = self.deaths;
        delivery
    }

    /// Returns the properties of a copy for a retry.
    pub(crate) fn for_retry(&self, retry: &Retry) -> BasicProperties {
        let mut marks = self.standing();
        marks.set(ATTEMPT, retry.attempt);
        marks.set(FIRST_AT, retry.first_at.0);
        marks.set_text(REASON, &retry.reason);
        if self.deaths > 0 {
            marks.set(DEATHS, self.deaths);
        }
        if let Some(end) = self.expires_at {
            marks.set(EXPIRES_AT, end.0);
        }
        self.with(marks)
    }

    /// Returns the properties of a dead letter. A dead letter does not expire, and a redriven dead letter does not
    /// count as expired.
    pub(crate) fn for_dead_letter(&self, letter: &DeadLetter, queue: &str) -> BasicProperties {
        let mut marks = self.standing();
        marks.set_text(REASON, &letter.reason);
        marks.set_text(QUEUE, queue);
        marks.set(ATTEMPTS, letter.attempts);
        marks.set(FIRST_AT, letter.first_at.0);
        marks.set(LAST_AT, letter.last_at.0);
        marks.set(DEATHS, letter.deaths);
        if let Some(id) = &letter.id {
            marks.set_text(ID, id);
        }
        self.with(marks)
    }

    fn standing(&self) -> RetryHeaders {
        let mut marks = RetryHeaders::default();
        for (name, value) in [(EXPIRATION, &self.expiration), (USER, &self.user)] {
            if let Some(value) = value {
                marks.set_text(name, value);
            }
        }
        marks
    }

    /// Returns all properties with persistence, except those that are stored in headers.
    fn with(&self, marks: RetryHeaders) -> BasicProperties {
        let mut headers = marks.0;
        for (name, value) in self.headers.inner() {
            let name = if ACTED_ON.contains(&name.as_str()) { format!("{KEPT}{name}").into() } else { name.clone() };
            headers.insert(name, value.clone());
        }
        copied(&self.properties).with_headers(headers.into()).with_delivery_mode(PERSISTENT)
    }
}

pub(crate) const PERSISTENT: u8 = 2;

/// Returns a copy without headers, expiration and user, because the client has no method to remove a property.
fn copied(from: &BasicProperties) -> BasicProperties {
    let mut to = BasicProperties::default();
    macro_rules! copy {
        ($($read:ident $write:ident)*) => { $(if let Some(value) = from.$read() { to = to.$write(value.clone()); })* };
    }
    copy! {
        content_type with_content_type
        content_encoding with_content_encoding
        priority with_priority
        correlation_id with_correlation_id
        reply_to with_reply_to
        message_id with_message_id
        timestamp with_timestamp
        kind with_type
        app_id with_app_id
        cluster_id with_cluster_id
    }
    to
}

/// Returns the end of a message by its `expiration`, which counts from the arrival at the broker. No property contains
/// that time. The first delivery is later, so the result is the latest possible end. A timestamp has no fractions, so
/// the message gains up to a second.
fn expiry(properties: &BasicProperties, by_timestamp: bool, seen: Timestamp) -> Option<Timestamp> {
    let ms: u64 = properties.expiration().as_ref()?.as_str().parse().ok()?;
    let sent = properties.timestamp().filter(|_| by_timestamp).map(|s| s.saturating_add(1).saturating_mul(1_000_000));
    Some(Timestamp(sent.unwrap_or(seen.0).saturating_add(ms.saturating_mul(1_000))))
}

/// Returns the end of validity from a header: an AMQP timestamp in seconds, or a number of ms since 1970.
fn until(headers: &Table, name: &str) -> Option<Timestamp> {
    let value = headers.get(name)?;
    let number = u64::try_from(number(value)?).ok()?;
    Some(Timestamp(number.saturating_mul(if matches!(value, AMQPValue::Timestamp(_)) { 1_000_000 } else { 1_000 })))
}

#[derive(Default)]
struct RetryHeaders(Table);

impl RetryHeaders {
    fn set(&mut self, name: &'static str, value: impl Into<u64>) {
        let value = i64::try_from(value.into()).unwrap_or(i64::MAX);
        self.0.insert(name.into(), AMQPValue::LongLongInt(value));
    }

    fn set_text(&mut self, name: &'static str, value: &str) {
        let end = value.floor_char_boundary(LONGEST_REASON);
        self.0.insert(name.into(), AMQPValue::LongString(value[..end].into()));
    }

    fn number(&self, name: &str) -> Option<u64> {
        u64::try_from(number(self.0.get(name)?)?).ok()
    }

    fn small(&self, name: &str) -> Option<u32> {
        u32::try_from(self.number(name)?).ok()
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(str::to_owned),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
