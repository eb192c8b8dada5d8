//! What we leave on a message, beside what is its own: headers that begin with `x-idempotent-`.
mod broker;
mod lying;

use std::collections::BTreeMap;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Delivery, Position, Retry};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::Queue;
use crate::headers::{headers, number};

pub(crate) use self::lying::{letter, properties_back};

type Table = BTreeMap<ShortString, AMQPValue>;

/// A message as its producer made it, and what was left on it since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marked {
    properties: BasicProperties,
    /// Without marks of ours or the broker's.
    pub(crate) headers: FieldTable,
    pub(crate) attempt: Option<u32>,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) deaths: u32,
    /// Deliveries of this copy. Whoever makes a copy is alive, so what kills its process is counted here in full, and
    /// what is put off often is not taken for that.
    pub(crate) delivered: u32,
    pub(crate) expires_at: Option<Timestamp>,
    /// The property, in ms: the broker takes it off what waits for its delay.
    expiration: Option<String>,
    /// The property: the broker refuses a copy that names another user than ours.
    user: Option<String>,
}

/// By what a message's end is known, beside its `expiration`.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    pub(crate) header: Option<String>,
    /// `timestamp` is when the producer handed it over, so that `expiration` counts from there.
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
/// Before the name of a header that would do something to a copy.
const KEPT: &str = "x-idempotent-kept-";
/// To the queues that the first two name the broker routes a message, too: a copy must not take that way again. By the
/// third it drops what would come into a queue for the second time on its own: a copy comes by a queue for delays.
const ACTED_ON: [&str; 3] = ["CC", "BCC", "x-death"];
const LONGEST_REASON: usize = 1024;

impl Marked {
    /// `now` is when the delivery came.
    pub(crate) fn read(properties: BasicProperties, queue: &Queue, end: &End, now: Timestamp) -> Self {
        let mut theirs: Table = properties.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
        let redeliveries = broker::take_marks(&mut theirs, queue);
        let ours = theirs.split_off(PREFIX);
        let mut marks = Marks::default();
        for (name, value) in ours {
            match name.as_str().strip_prefix(KEPT) {
                Some(kept) => drop(theirs.insert(kept.into(), value)),
                None if name.as_str().starts_with(PREFIX) => drop(marks.0.insert(name, value)),
                // Behind the prefix in the alphabet.
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

    /// What is known by the message alone.
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

    /// The properties of a copy that comes again.
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

    /// The properties of a dead letter. It does not expire, and one that is taken out of its queue is not held to be
    /// expired.
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

    fn standing(&self) -> Marks {
        let mut marks = Marks::default();
        for (name, value) in [(EXPIRATION, &self.expiration), (USER, &self.user)] {
            if let Some(value) = value {
                marks.set_text(name, value);
            }
        }
        marks
    }

    /// All properties, but persistent, and without those that are marks now.
    fn with(&self, marks: Marks) -> BasicProperties {
        let mut headers = marks.0;
        for (name, value) in self.headers.inner() {
            let name = if ACTED_ON.contains(&name.as_str()) { format!("{KEPT}{name}").into() } else { name.clone() };
            headers.insert(name, value.clone());
        }
        copied(&self.properties).with_headers(headers.into()).with_delivery_mode(PERSISTENT)
    }
}

pub(crate) const PERSISTENT: u8 = 2;

/// Without headers, expiration and user: there is no way to take one off.
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

/// `expiration` is counted from when the broker got the message, which nobody says. The first delivery is later than
/// that, so this is the latest end there can be; a timestamp has no fractions, so a second goes to the message.
fn expiry(properties: &BasicProperties, by_timestamp: bool, seen: Timestamp) -> Option<Timestamp> {
    let ms: u64 = properties.expiration().as_ref()?.as_str().parse().ok()?;
    let sent = properties.timestamp().filter(|_| by_timestamp).map(|s| s.saturating_add(1).saturating_mul(1_000_000));
    Some(Timestamp(sent.unwrap_or(seen.0).saturating_add(ms.saturating_mul(1_000))))
}

/// A header that says when a message's time is over: a timestamp of AMQP's in s, or a number of ms since 1970.
fn until(headers: &Table, name: &str) -> Option<Timestamp> {
    let value = headers.get(name)?;
    let number = u64::try_from(number(value)?).ok()?;
    Some(Timestamp(number.saturating_mul(if matches!(value, AMQPValue::Timestamp(_)) { 1_000_000 } else { 1_000 })))
}

#[derive(Default)]
struct Marks(Table);

impl Marks {
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
