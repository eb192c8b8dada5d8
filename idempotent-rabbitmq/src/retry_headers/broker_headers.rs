//! Headers that the broker adds on the way through the queues for delays.
use lapin::types::{AMQPValue, ShortString};

use super::Table;
use crate::Queue;
use crate::delay_queues::{HEADER, QUEUES};
use crate::headers::number;

/// Removes the broker's headers about queues of this adapter, and keeps those about other queues. Returns the earlier
/// deliveries of this copy by a quorum queue.
pub(super) fn take_headers(headers: &mut Table, queue: &Queue) -> u32 {
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

/// Returns the number of earlier deliveries of this copy by a quorum queue.
pub(super) fn take_counts(headers: &mut Table) -> u32 {
    // The total number. The newer header, since 4.0, also counts deliveries that were given back.
    let acquired = headers.remove("x-acquired-count").as_ref().and_then(number);
    let redeliveries = headers.remove("x-delivery-count").as_ref().and_then(number);
    acquired.max(redeliveries).and_then(|times| u32::try_from(times).ok()).unwrap_or_default()
}

/// Removes deaths in queues for delays from the broker's list, because a waiting copy is not dead.
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

/// Returns the bytes of a text value.
pub(super) fn text(value: Option<&AMQPValue>) -> Option<&[u8]> {
    match value? {
        AMQPValue::LongString(text) => Some(text.as_bytes()),
        _ => None,
    }
}
