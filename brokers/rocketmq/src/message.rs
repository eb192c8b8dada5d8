//! Conversion of outbound messages to RocketMQ.
use idempotent_mq::{OutboundMessage, PublishError, PublishErrorKind};
use rocketmq_model::common::topic::TopicValidator;

use crate::SettingError;
use crate::headers::encode_headers;
use crate::producer::{MAX_BODY, PreparedMessage};
use crate::properties::{EMPTY, HEADERS, KEYS, MAX_PUBLISHED, TAGS, UNIQ_KEY, as_property, length};
use crate::settings::check_name;

/// Encodes a message for immediate delivery.
///
/// # Errors
/// `Refused` if no broker can accept the message.
pub(crate) fn encode(message: &OutboundMessage) -> Result<PreparedMessage, PublishError> {
    prepare(message).map_err(|error| PublishError::new(PublishErrorKind::Refused, error.to_string()))
}

/// Splits a topic, `TOPIC` or `TOPIC:TAG`.
pub(crate) fn topic_and_tag(topic: &str) -> (&str, Option<&str>) {
    topic.split_once(':').map_or((topic, None), |(topic, tag)| (topic, Some(tag)))
}

fn prepare(message: &OutboundMessage) -> Result<PreparedMessage, SettingError> {
    let (topic, tag) = topic_and_tag(&message.topic);
    check_name("topic", topic)?;
    if TopicValidator::is_not_allowed_send_topic(topic) {
        return Err(SettingError::new("topic: reserved for the broker; choose another topic"));
    }
    if !u32::try_from(message.body.len()).is_ok_and(|bytes| bytes <= MAX_BODY) {
        return Err(SettingError::new("body: longer than 128 MiB, the client's limit; send a shorter body"));
    }
    let mut properties = encode_headers(&message.headers, HEADERS);
    let own = [(UNIQ_KEY, Some(&*message.id)), (KEYS, message.business_key.as_deref()), (TAGS, tag)];
    for (name, value) in own.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let Some(value) = as_property(value.as_bytes()) else {
            return Err(SettingError::new(
                "id, business key or tag: empty, or contains one of the characters U+0001 and U+0002; choose another value",
            ));
        };
        properties.insert(name.to_owned(), value.to_owned());
    }
    if message.body.is_empty() {
        properties.insert(EMPTY.to_owned(), "1".to_owned());
    }
    let bytes = length(&properties);
    if bytes > MAX_PUBLISHED {
        let text = format!(
            "headers: the properties of the message to `{topic}` take {bytes} bytes, and RocketMQ stores 32 KB with those of a \
             copy, which leaves {MAX_PUBLISHED}; send shorter headers, or move data into the body"
        );
        return Err(SettingError::new(text));
    }
    Ok(PreparedMessage { topic: topic.to_owned(), properties, flag: 0, level: 0, body: message.body.clone() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(topic: &str, id: &str) -> OutboundMessage {
        OutboundMessage::new(topic, id, "b")
    }

    #[test]
    fn a_message_that_the_broker_would_truncate_or_misread_is_rejected_with_the_reason() {
        let long = message("t", "m").header("long", "x".repeat(40_000));
        let error = encode(&long).unwrap_err();
        assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains("32 KB"), "{error}");
        for odd in [message("t", ""), message("t", "a\u{1}b"), message("t", "m").business_key(""), message("t:", "m")] {
            assert!(encode(&odd).is_err());
        }
        for topic in ["no.dots", "", ":tag", "a b", "SCHEDULE_TOPIC_XXXX"] {
            assert!(encode(&message(topic, "m")).is_err(), "{topic}");
        }
        assert!(encode(&message("orders_1", "m")).is_ok());
    }

    #[test]
    fn a_topic_may_have_a_tag() {
        let prepared = encode(&message("orders:paid", "m").business_key("order-17")).unwrap();
        assert_eq!(prepared.topic, "orders");
        let property = |name: &str| prepared.properties.get(name).map(ToString::to_string);
        assert_eq!([TAGS, KEYS, UNIQ_KEY].map(property), ["paid", "order-17", "m"].map(|value| Some(value.to_owned())));
    }
}
