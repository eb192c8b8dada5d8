//! The headers that this crate adds to copies and dead letters. Their names begin with `x-idempotent-`.
mod broker_headers;
mod dead_letter;
mod own_headers;

use std::borrow::Cow;

use idempotent_core::__private::start_of;
use idempotent_core::Timestamp;
use idempotent_mq::{Datum, DeadLetter, Delivery, Envelope, Field, MessagePlace, Position, Retry};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

pub(crate) use self::dead_letter::{decode_letter, redriven_properties};
use self::own_headers::{ACTED_ON, EXPIRATION, EXPIRES_AT, HeaderTable, KEPT, OwnHeaders, PREFIX, QUEUE, USER};
use crate::Queue;
use crate::headers::{decode_headers, integer};
use crate::properties::{PERSISTENT, copy_properties};

/// The decoded headers and properties of a message: those of its producer, and the values that this crate added to a
/// copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryHeaders {
    properties: BasicProperties,
    /// The producer's headers, without headers of this crate or of the broker.
    pub(crate) headers: FieldTable,
    pub(crate) envelope: Envelope,
    /// Number of deliveries of this copy. Each retry creates a new copy, so the number counts deliveries without a
    /// settlement, such as those that ended in a crash.
    pub(crate) delivered: u32,
    pub(crate) expires_at: Option<Timestamp>,
    /// The property in ms. The broker removes the property when a copy leaves its retry queue.
    expiration: Option<String>,
    /// The property. The broker rejects a copy with the name of a user other than the connection's.
    user: Option<String>,
}

/// The settings that determine when a message expires, besides the property `expiration`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpirySettings {
    pub(crate) header: Option<String>,
    /// True if `expiration` counts from the property `timestamp`.
    pub(crate) by_timestamp: bool,
}

impl RetryHeaders {
    /// Decodes the properties of a message that was received at `now`. Malformed values are ignored, and so are the
    /// attempt and the expiry time of a message that has not left a retry queue.
    pub(crate) fn decode(properties: BasicProperties, queue: &Queue, expiry: &ExpirySettings, now: Timestamp) -> Self {
        let mut headers: HeaderTable =
            properties.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
        let place = broker_headers::place(&headers, queue);
        let redeliveries = broker_headers::remove_delay_headers(&mut headers, queue);
        let mut own = OwnHeaders::default();
        for (name, value) in headers.split_off(PREFIX) {
            match name.as_str().strip_prefix(KEPT) {
                Some(kept) => drop(headers.insert(kept.into(), value)),
                None if name.as_str().starts_with(PREFIX) => drop(own.0.insert(name, value)),
                // A name that is greater than the prefix.
                None => drop(headers.insert(name, value)),
            }
        }
        let text = |property: &Option<ShortString>| property.as_ref().map(ToString::to_string);
        let own_text = |field| own.get(field).map(Cow::into_owned);
        let expiration = text(properties.expiration()).or_else(|| own_text(EXPIRATION));
        let envelope = own.envelope(place);
        let expires_at = own.get(EXPIRES_AT).filter(|_| place.believes(EXPIRES_AT)).and_then(|at| at.parse().ok());
        // A producer must not date a message back.
        let seen = envelope.first_at.filter(|_| place == MessagePlace::Retry).unwrap_or(now);
        let expires_at = expires_at.map(Timestamp).or_else(|| expiry_in_header(&headers, expiry.header.as_deref()?));
        Self {
            envelope,
            delivered: redeliveries.saturating_add(1),
            expires_at: expires_at.or_else(|| latest_expiry(&properties, expiry.by_timestamp, seen)),
            user: text(properties.user_id()).or_else(|| own_text(USER)),
            headers: headers.into(),
            properties,
            expiration,
        }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.properties.message_id().as_ref().map(ShortString::as_str)
    }

    /// Returns a delivery with the values that the message itself contains.
    pub(crate) fn delivery(&self, position: Position, body: Vec<u8>) -> Delivery {
        let mut delivery = Delivery::new(position, body);
        delivery.id = self.id().map(str::to_owned);
        delivery.headers = decode_headers(&self.headers);
        delivery.expires_at = self.expires_at;
        self.envelope.clone().open(&mut delivery);
        delivery
    }

    /// Returns the properties of a copy for a retry.
    pub(crate) fn encode_retry(&self, retry: &Retry) -> BasicProperties {
        let mut own = self.own_headers(&self.envelope.clone().retried(retry));
        own.set(Field::Reason, Datum::Text(&retry.reason));
        if let Some(expires_at) = self.expires_at {
            own.set(EXPIRES_AT, Datum::Number(expires_at.0));
        }
        self.copy_with(own, self.headers.inner())
    }

    /// Returns the properties of a dead letter. The attempt and the expiry time are left out: a dead letter does not
    /// expire, and starts with its first attempt after a redrive.
    ///
    /// A letter that does not fit loses its largest headers, and its reason names them. Their names are returned, too.
    pub(crate) fn encode_dead_letter(
        &self,
        letter: &DeadLetter,
        queue: &str,
        fits: impl Fn(&BasicProperties) -> bool,
    ) -> (BasicProperties, Vec<String>) {
        let size = |value: &AMQPValue| format!("{value:?}").len();
        let mut by_size: Vec<_> = self.headers.inner().iter().map(|(name, value)| (size(value), name)).collect();
        by_size.sort_by(|one, other| other.cmp(one));
        let mut count = 0;
        loop {
            let left_out: Vec<_> = by_size.iter().take(count).map(|(_, name)| name.to_string()).collect();
            let mut kept = self.headers.inner().clone();
            kept.retain(|name, _| !left_out.iter().any(|out| out == name.as_str()));
            let encoded = self.encode_letter_with(letter, queue, &kept, &left_out);
            if count >= by_size.len() || fits(&encoded) {
                return (encoded, left_out);
            }
            count = (count * 2).max(1);
        }
    }

    fn encode_letter_with(
        &self,
        letter: &DeadLetter,
        queue: &str,
        headers: &HeaderTable,
        left_out: &[String],
    ) -> BasicProperties {
        let mut own = self.own_headers(&self.envelope.clone().dead(letter));
        if !left_out.is_empty() {
            let reason = start_of(&letter.reason, MAX_REASON);
            own.set(Field::Reason, Datum::Text(&format!("{reason} ({})", without(left_out))));
        }
        own.set(QUEUE, Datum::Text(queue));
        self.copy_with(own, headers)
    }

    /// Returns the headers of an envelope, and those that replace properties on copies and dead letters.
    fn own_headers(&self, envelope: &Envelope) -> OwnHeaders {
        let mut own = OwnHeaders::of(envelope);
        for (field, value) in [(EXPIRATION, &self.expiration), (USER, &self.user)] {
            if let Some(value) = value {
                own.set(field, Datum::Text(value));
            }
        }
        own
    }

    /// Returns the properties of a persistent copy with these own headers and these headers of the producer.
    fn copy_with(&self, own: OwnHeaders, producers: &HeaderTable) -> BasicProperties {
        let mut headers = own.0;
        for (name, value) in producers {
            let name = if ACTED_ON.contains(&name.as_str()) { format!("{KEPT}{name}").into() } else { name.clone() };
            headers.insert(name, value.clone());
        }
        copy_properties(&self.properties).with_headers(headers.into()).with_delivery_mode(PERSISTENT)
    }
}

/// Maximum length of the reason of a letter without some headers, in bytes.
const MAX_REASON: usize = 500;

/// Returns the text about the headers that a letter does not have.
fn without(names: &[String]) -> String {
    let some = names.iter().take(8).map(|name| start_of(name, 40)).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(8);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("stored without the headers {some}{more}, with which the letter exceeds the largest frame of the broker")
}

/// Returns the latest time at which the property `expiration` may end. The property counts from the arrival at the
/// broker, which is unknown and not later than `seen`. A timestamp has whole seconds and is rounded up.
fn latest_expiry(properties: &BasicProperties, by_timestamp: bool, seen: Timestamp) -> Option<Timestamp> {
    let ms: u64 = properties.expiration().as_ref()?.as_str().parse().ok()?;
    let sent = properties.timestamp().filter(|_| by_timestamp).map(|s| s.saturating_add(1).saturating_mul(1_000_000));
    Some(Timestamp(sent.unwrap_or(seen.0).saturating_add(ms.saturating_mul(1_000))))
}

/// Returns the expiry time in a header: an AMQP timestamp in s, or a number of ms since 1970.
fn expiry_in_header(headers: &HeaderTable, name: &str) -> Option<Timestamp> {
    let value = headers.get(name)?;
    let number = u64::try_from(integer(value)?).ok()?;
    Some(Timestamp(number.saturating_mul(if matches!(value, AMQPValue::Timestamp(_)) { 1_000_000 } else { 1_000 })))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
