//! Decoding of the messages in a dead letter queue, and their properties for a redrive.
use idempotent_core::Timestamp;
use idempotent_mq::{Datum, DeadLetter, Field, MessagePlace};
use lapin::BasicProperties;
use lapin::types::AMQPValue;

use super::broker_headers::{place, take_redeliveries, text};
use super::own_headers::{ACTED_ON, EXPIRES_AT, HeaderTable, KEPT, OwnHeaders, USER, name_of};
use crate::Queue;
use crate::properties::{PERSISTENT, copy_properties};

/// Returns the dead letter that the consumer or the broker recorded for this queue, or `None` if the headers contain
/// neither.
pub(crate) fn decode_letter(properties: &BasicProperties, queue: &Queue) -> Option<DeadLetter> {
    let own = OwnHeaders(properties.headers().as_ref()?.inner().clone());
    // A dead letter of the consumer has no list of the broker's. A message with such a list is a dead letter of the
    // broker, and has headers of its producer or of an earlier death.
    if own.0.contains_key("x-death") {
        let death = broker_death(&own.0, &queue.name)?;
        return Some(decode_broker_letter(&own, &death, place(&own.0, queue)));
    }
    own.envelope(MessagePlace::DeadLetters).letter
}

/// Returns the broker's entry for the latest death in this queue.
fn broker_death(headers: &HeaderTable, queue: &str) -> Option<HeaderTable> {
    let Some(AMQPValue::FieldArray(deaths)) = headers.get("x-death") else { return None };
    let of_queue = |death: &AMQPValue| match death {
        AMQPValue::FieldTable(death) => {
            let death = death.inner();
            (text(death.get("queue")) == Some(queue.as_bytes())).then(|| death.clone())
        }
        _ => None,
    };
    deaths.as_slice().iter().find_map(of_queue)
}

fn decode_broker_letter(own: &OwnHeaders, death: &HeaderTable, place: MessagePlace) -> DeadLetter {
    let reason = match text(death.get("reason")) {
        Some(b"expired") => "expired: the time to live in the queue is over",
        Some(b"maxlen") => "maxlen: the queue was full",
        Some(b"delivery_limit") => "delivery_limit: the message was delivered more often than the queue allows",
        Some(b"rejected") => "rejected: a consumer rejected the message",
        _ => "dead-lettered by the broker for another reason",
    };
    let at = match death.get("time") {
        Some(AMQPValue::Timestamp(seconds)) => Timestamp(seconds.saturating_mul(1_000_000)),
        _ => Timestamp::default(),
    };
    let mut letter = DeadLetter::because(reason, at);
    let envelope = own.envelope(place);
    letter.attempts = envelope.attempt.unwrap_or(1);
    letter.first_at = envelope.first_at.unwrap_or(at);
    letter.deaths = envelope.deaths.saturating_add(1);
    letter
}

/// Returns the properties of a redriven message. The delivery counts of the dead letter queue are removed. Headers of
/// this crate replace values that the broker would act on or reject. All other values are unchanged.
///
/// A dead letter of the broker loses the headers of its last run, and its death is counted. Redriven messages of the
/// broker and of the consumer thereby start with their first attempt.
pub(crate) fn redriven_properties(from: &BasicProperties, queue: &str) -> BasicProperties {
    let mut headers: HeaderTable = from.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
    take_redeliveries(&mut headers, true);
    if broker_death(&headers, queue).is_some() {
        let mut own = OwnHeaders(headers);
        let deaths = own.envelope(MessagePlace::Queue).deaths.saturating_add(1);
        own.set(Field::Deaths, Datum::Number(deaths.into()));
        headers = own.0;
        for field in [Field::Attempt, EXPIRES_AT, Field::Reason] {
            headers.remove(&name_of(field));
        }
    }
    for name in ACTED_ON {
        if let Some(value) = headers.remove(name) {
            headers.insert(format!("{KEPT}{name}").into(), value);
        }
    }
    if let Some(user) = from.user_id() {
        headers.insert(name_of(USER), AMQPValue::LongString(user.as_str().into()));
    }
    let redriven = copy_properties(from).with_headers(headers.into()).with_delivery_mode(PERSISTENT);
    match from.expiration() {
        Some(time) => redriven.with_expiration(time.clone()),
        None => redriven,
    }
}
