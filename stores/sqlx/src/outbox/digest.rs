//! The digest of a message's content.
use std::borrow::Cow;

use idempotent_mq::{Headers, OutboundMessage, TRACE_HEADERS};
use sha2::{Digest, Sha256};

pub(super) use crate::packed::{pack, unpack};

/// Returns the digest of a message's content, by which the outbox recognizes another message with the same id. The trace context
/// is not part of the content, because each try to write a message has its own.
pub(super) fn digest(message: &OutboundMessage) -> [u8; 32] {
    let mut sum = Sha256::new();
    let optional = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
    let parts = [
        Some(message.topic.as_bytes().to_vec()),
        optional(&message.business_key),
        optional(&message.aggregate),
        Some(pack(&without_trace(&message.headers))),
        Some(message.body.clone()),
    ];
    for part in parts {
        // An absent part differs from an empty one.
        sum.update(part.as_ref().map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        sum.update(part.unwrap_or_default());
    }
    sum.finalize().into()
}

fn without_trace(headers: &Headers) -> Cow<'_, Headers> {
    let mut headers = Cow::Borrowed(headers);
    for name in TRACE_HEADERS {
        if headers.first(name).is_some() {
            headers.to_mut().remove(name);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_text_in_another_field_is_another_message() {
        let one = OutboundMessage::new("t", "id", "b");
        let others = [
            OutboundMessage::new("tb", "id", ""),
            one.clone().business_key("k"),
            one.clone().aggregate("k"),
            one.clone().aggregate(""),
            one.clone().header("n", "v"),
            OutboundMessage::new("t", "id", "c"),
        ];
        let mut digests: Vec<_> = others.iter().chain([&one]).map(digest).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 7);
        assert_eq!(digest(&one), digest(&OutboundMessage::new("t", "other id", "b")));
        let traced = one.clone().header("traceparent", "00-…").header("tracestate", "a=b");
        assert_eq!(digest(&one), digest(&traced), "the same message in a trace");
        assert_ne!(digest(&one), digest(&one.clone().header("Traceparent", "")), "another header");
    }
}
