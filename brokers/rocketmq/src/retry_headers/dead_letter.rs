//! Decoding of the messages in a dead-letter topic.
use idempotent_core::Timestamp;
use idempotent_mq::DeadLetter;

use super::{ATTEMPTS, DEATHS, FIRST_AT, ID, LAST_AT, REASON, TOPIC};
use crate::properties::Properties;

/// Returns the dead letter that a consumer has stored, or `None` if a property is missing or malformed.
pub(crate) fn decode_letter(properties: &Properties) -> Option<DeadLetter> {
    let number = |name: &str| properties.get(name)?.parse::<u64>().ok();
    let small = |name: &str| number(name)?.try_into().ok();
    // RocketMQ reads an empty value as a missing property, and a reason may be empty.
    let reason = properties.get(REASON).cloned().unwrap_or_default();
    let mut letter = DeadLetter::because(reason, Timestamp(number(LAST_AT)?));
    letter.id = properties.get(ID).cloned();
    (letter.attempts, letter.deaths) = (small(ATTEMPTS)?, small(DEATHS)?);
    letter.first_at = Timestamp(number(FIRST_AT)?);
    Some(letter)
}

/// Returns the topic from which a consumer has dead-lettered the message.
pub(crate) fn original_topic(properties: &Properties) -> Option<&str> {
    properties.get(TOPIC).map(String::as_str)
}
