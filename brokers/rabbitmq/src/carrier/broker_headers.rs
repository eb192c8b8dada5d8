//! The headers that the broker adds to a message in retry queues and delay queues.
use std::time::Duration;

use idempotent_mq::MessagePlace;
use lapin::types::{AMQPValue, ShortString};

use super::own_headers::HeaderTable;
use crate::Queue;
use crate::delay_queues::names::{DESTINATION, FIRST_LEVEL, HEADER_PREFIX, PLUGIN_DELAY, QUEUE_PREFIX};
use crate::headers::integer;

/// Removes the broker's headers about retry queues and delay queues, and keeps those about other queues. Returns how
/// often a quorum queue has delivered this copy before.
pub(super) fn remove_delay_headers(headers: &mut HeaderTable, queue: &Queue) -> u32 {
    let retries = queue.retry_prefix();
    let is_own = |queue: &[u8]| queue.starts_with(retries.as_bytes()) || queue.starts_with(QUEUE_PREFIX.as_bytes());
    remove_deaths(headers, is_own);
    // Without levels, the delay of a publisher of this crate is the plugin's. Other delays are the producer's.
    if headers.contains_key(DESTINATION) && !headers.contains_key(FIRST_LEVEL) {
        headers.remove(PLUGIN_DELAY);
    }
    headers.retain(|name, _| !name.as_str().starts_with(HEADER_PREFIX));
    for which in ["first", "last"] {
        let named = |what: &str| format!("x-{which}-death-{what}");
        if text(headers.get(named("queue").as_str())).is_some_and(is_own) {
            for what in ["queue", "reason", "exchange"] {
                headers.remove(named(what).as_str());
            }
        }
    }
    // A queue that delays deferred messages counts each deferral as a delivery.
    take_redeliveries(headers, !queue.delays(Duration::ZERO))
}

/// Returns the place from which the broker has delivered a message to the queue: its producer, or a retry queue. The broker writes `x-death` at that moment, so the
/// headers of this crate are its own. Without the entry, a producer or another program has written them.
pub(super) fn place(headers: &HeaderTable, queue: &Queue) -> MessagePlace {
    let Some(AMQPValue::FieldArray(deaths)) = headers.get("x-death") else { return MessagePlace::Queue };
    let retries = queue.retry_prefix();
    let is_retried = deaths.as_slice().iter().any(|death| match death {
        AMQPValue::FieldTable(death) => {
            let (from, reason) = (text(death.inner().get("queue")), text(death.inner().get("reason")));
            from.is_some_and(|from| from.starts_with(retries.as_bytes())) && reason == Some(b"expired")
        }
        _ => false,
    });
    if is_retried { MessagePlace::Retry } else { MessagePlace::Queue }
}

/// Removes the counts of a quorum queue. Returns how often the queue has delivered this copy before. `with_returned`
/// includes deliveries that were given back or deferred, which only RabbitMQ 4.0 and later counts separately.
pub(super) fn take_redeliveries(headers: &mut HeaderTable, with_returned: bool) -> u32 {
    let acquired = headers.remove("x-acquired-count").filter(|_| with_returned).as_ref().and_then(integer);
    let redeliveries = headers.remove("x-delivery-count").as_ref().and_then(integer);
    acquired.max(redeliveries).and_then(|times| u32::try_from(times).ok()).unwrap_or_default()
}

/// Removes the entries of own queues from the broker's list of deaths. A copy that waited in such a queue is not dead.
fn remove_deaths(headers: &mut HeaderTable, is_own: impl Fn(&[u8]) -> bool) {
    let key = "x-death";
    let Some(AMQPValue::FieldArray(deaths)) = headers.get(key) else { return };
    let is_other = |death: &&AMQPValue| match death {
        AMQPValue::FieldTable(death) => !text(death.inner().get("queue")).is_some_and(&is_own),
        _ => true,
    };
    let others: Vec<_> = deaths.as_slice().iter().filter(is_other).cloned().collect();
    if others.is_empty() {
        headers.remove(key);
    } else {
        headers.insert(ShortString::from(key), AMQPValue::FieldArray(others.into()));
    }
}

/// Returns the bytes of a text.
pub(super) fn text(value: Option<&AMQPValue>) -> Option<&[u8]> {
    match value? {
        AMQPValue::LongString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deferral_by_the_broker_is_no_redelivery() {
        let day = Duration::from_secs(24 * 3600);
        for (queue, expected) in [(Queue::quorum("q"), 7), (Queue::quorum("q").delayed_retry(day, day), 3)] {
            let counts = [("x-acquired-count", 7), ("x-delivery-count", 3)];
            let mut headers = counts.map(|(name, count)| (name.into(), AMQPValue::LongLongInt(count))).into();
            assert_eq!(remove_delay_headers(&mut headers, &queue), expected);
            assert!(headers.is_empty());
        }
    }
}
