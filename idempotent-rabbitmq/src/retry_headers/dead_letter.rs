//! State of a dead letter in its queue.
use idempotent_core::Timestamp;
use idempotent_mq::DeadLetter;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use super::broker_headers::{take_counts, text};
use super::{
    ACTED_ON, ATTEMPT, ATTEMPTS, DEATHS, EXPIRES_AT, FIRST_AT, ID, KEPT, LAST_AT, PERSISTENT, REASON, RetryHeaders,
    Table, USER, copied,
};

/// Returns the state that the consumer or the broker stored in a dead letter of this queue, or `None` if neither
/// dead-lettered the message.
pub(crate) fn letter(properties: &BasicProperties, queue: &str) -> Option<DeadLetter> {
    let marks = RetryHeaders(properties.headers().as_ref()?.inner().clone());
    // Headers of an earlier death stay on a redriven message. A consumer's dead letter has no list of the broker's
    // deaths.
    if let Some(death) = broker_death(&marks.0, queue) {
        return Some(by_broker(&marks, &death));
    }
    let mut letter = DeadLetter::because(marks.text(REASON)?, Timestamp(marks.number(LAST_AT)?));
    letter.id = marks.text(ID);
    letter.attempts = marks.small(ATTEMPTS)?;
    letter.first_at = Timestamp(marks.number(FIRST_AT)?);
    letter.deaths = marks.small(DEATHS)?;
    Some(letter)
}

/// Returns the latest death in this queue from the broker's list.
fn broker_death(headers: &Table, queue: &str) -> Option<Table> {
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

fn by_broker(marks: &RetryHeaders, death: &Table) -> DeadLetter {
    let reason = match text(death.get("reason")) {
        Some(b"expired") => "expired: the time to live in the queue ended",
        Some(b"maxlen") => "maxlen: the queue was full",
        Some(b"delivery_limit") => "delivery_limit: the queue's delivery limit was exceeded",
        Some(b"rejected") => "rejected: a consumer rejected the message",
        _ => "dead-lettered by the broker for an unknown reason",
    };
    let at = match death.get("time") {
        Some(AMQPValue::Timestamp(seconds)) => Timestamp(seconds.saturating_mul(1_000_000)),
        _ => Timestamp::default(),
    };
    let mut letter = DeadLetter::because(reason, at);
    letter.attempts = marks.small(ATTEMPT).unwrap_or(1);
    letter.first_at = marks.number(FIRST_AT).map_or(at, Timestamp);
    letter.deaths = marks.small(DEATHS).unwrap_or_default().saturating_add(1);
    letter
}

/// Returns the properties of a redriven dead letter: those of the dead letter, without those of this queue. Headers of
/// the adapter replace properties that the broker would act on or refuse. A dead letter of the consumer has these
/// headers already.
///
/// For a dead letter of the broker, the function removes the headers of a run and counts the death, as a consumer's
/// dead letter does: the first attempt has died.
pub(crate) fn properties_back(from: &BasicProperties, queue: &str) -> BasicProperties {
    let mut headers: Table = from.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
    take_counts(&mut headers);
    if broker_death(&headers, queue).is_some() {
        let deaths = RetryHeaders(headers.clone()).small(DEATHS).unwrap_or_default().saturating_add(1);
        for name in [ATTEMPT, EXPIRES_AT, REASON] {
            headers.remove(name);
        }
        headers.insert(DEATHS.into(), AMQPValue::LongLongInt(deaths.into()));
    }
    for name in ACTED_ON {
        if let Some(value) = headers.remove(name) {
            headers.insert(format!("{KEPT}{name}").into(), value);
        }
    }
    if let Some(user) = from.user_id() {
        headers.insert(ShortString::from(USER), AMQPValue::LongString(user.as_str().into()));
    }
    let back = copied(from).with_headers(headers.into()).with_delivery_mode(PERSISTENT);
    match from.expiration() {
        Some(time) => back.with_expiration(time.clone()),
        None => back,
    }
}
