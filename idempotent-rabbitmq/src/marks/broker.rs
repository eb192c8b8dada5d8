//! What the broker leaves on a message on its way through the queues for delays.
use lapin::types::{AMQPValue, ShortString};

use super::Table;
use crate::Queue;
use crate::delays::{HEADER, QUEUES};
use crate::headers::number;

/// Takes it off, and leaves what it says of other queues. How often a quorum queue has delivered this copy before.
pub(super) fn take_marks(headers: &mut Table, queue: &Queue) -> u32 {
    let retries = queue.retries();
    let is_ours = |queue: &[u8]| queue.starts_with(retries.as_bytes()) || queue.starts_with(QUEUES.as_bytes());
    take_deaths(headers, is_ours);
    headers.retain(|name, _| !name.as_str().starts_with(HEADER));
    for which in ["first", "last"] {
        let named = |what: &str| format!("x-{which}-death-{what}");
        if text(headers.get(named("queue").as_str())).is_some_and(is_ours) {
            for what in ["queue", "reason", "exchange"] {
                headers.remove(named(what).as_str());
            }
        }
    }
    take_counts(headers)
}

/// How often a quorum queue has delivered this copy before.
pub(super) fn take_counts(headers: &mut Table) -> u32 {
    // In all; the newer one, of 4.0 and later, also counts those that were given back.
    let acquired = headers.remove("x-acquired-count").as_ref().and_then(number);
    let redeliveries = headers.remove("x-delivery-count").as_ref().and_then(number);
    acquired.max(redeliveries).and_then(|times| u32::try_from(times).ok()).unwrap_or_default()
}

/// The broker's list of deaths: a copy that waited in a queue for delays is not dead.
fn take_deaths(headers: &mut Table, is_ours: impl Fn(&[u8]) -> bool) {
    let key = "x-death";
    let Some(AMQPValue::FieldArray(deaths)) = headers.get(key) else { return };
    let is_other = |death: &&AMQPValue| match death {
        AMQPValue::FieldTable(death) => !text(death.inner().get("queue")).is_some_and(&is_ours),
        _ => true,
    };
    let others: Vec<_> = deaths.as_slice().iter().filter(is_other).cloned().collect();
    if others.is_empty() {
        headers.remove(key);
    } else {
        headers.insert(ShortString::from(key), AMQPValue::FieldArray(others.into()));
    }
}

/// The bytes of a text.
pub(super) fn text(value: Option<&AMQPValue>) -> Option<&[u8]> {
    match value? {
        AMQPValue::LongString(text) => Some(text.as_bytes()),
        _ => None,
    }
}
