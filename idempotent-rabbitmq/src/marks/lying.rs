//! A dead letter where it lies.
use idempotent_core::Timestamp;
use idempotent_mq::DeadLetter;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use super::broker::{take_counts, text};
use super::{
    ACTED_ON, ATTEMPT, ATTEMPTS, DEATHS, EXPIRES_AT, FIRST_AT, ID, KEPT, LAST_AT, Marks, PERSISTENT, REASON, Table,
    USER, copied,
};

/// Returns what the consumer or the broker left on a dead letter of this queue. `None` where neither dead-lettered it.
pub(crate) fn letter(properties: &BasicProperties, queue: &str) -> Option<DeadLetter> {
    let marks = Marks(properties.headers().as_ref()?.inner().clone());
    // Marks of an earlier death stay on a message that was put back. A consumer's dead letter has no list of the broker's.
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

/// What the broker notes of a death in this queue: its latest one.
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

fn by_broker(marks: &Marks, death: &Table) -> DeadLetter {
    let reason = match text(death.get("reason")) {
        Some(b"expired") => "expired: its time to live in the queue was over",
        Some(b"maxlen") => "maxlen: the queue was full",
        Some(b"delivery_limit") => "delivery_limit: it was delivered more often than the queue allows",
        Some(b"rejected") => "rejected: a consumer rejected it",
        _ => "dead-lettered by the broker for another reason",
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

/// Its properties in the queue that it is put back into: as they lie there, but for what is of this queue, and with marks
/// in place of what the broker would act on or refuse. Those are there already on a letter of ours.
///
/// The marks of a run are taken off a letter of the broker's, and the death is counted, as on a letter of ours: it is a first
/// attempt that has died.
pub(crate) fn properties_back(from: &BasicProperties, queue: &str) -> BasicProperties {
    let mut headers: Table = from.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
    take_counts(&mut headers);
    if broker_death(&headers, queue).is_some() {
        let deaths = Marks(headers.clone()).small(DEATHS).unwrap_or_default().saturating_add(1);
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
