//! A dead letter where it lies.
use idempotent_core::Micros;
use idempotent_mq::DeadLetter;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use super::broker::take_counts;
use super::{ACTED_ON, ATTEMPTS, DEATHS, FIRST_AT, ID, KEPT, LAST_AT, Marks, PERSISTENT, REASON, Table, USER, copied};

/// What we left on it. `None` where it was not we who put it aside.
pub(crate) fn letter(properties: &BasicProperties) -> Option<DeadLetter> {
    let marks = Marks(properties.headers().as_ref()?.inner().clone());
    let mut letter = DeadLetter::because(marks.text(REASON)?, Micros(marks.number(LAST_AT)?));
    letter.id = marks.text(ID);
    letter.attempts = marks.small(ATTEMPTS)?;
    letter.first_at = Micros(marks.number(FIRST_AT)?);
    letter.deaths = marks.small(DEATHS)?;
    Some(letter)
}

/// Its properties in the queue that it is put back into: as they lie there, but for what is of this queue, and with marks
/// in place of what the broker would act on or refuse. Those are there already on a letter of ours.
pub(crate) fn properties_back(from: &BasicProperties) -> BasicProperties {
    let mut headers: Table = from.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
    take_counts(&mut headers);
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
