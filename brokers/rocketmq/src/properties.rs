//! The properties of a message: their names, and the rules of RocketMQ for names and values.
use std::collections::BTreeMap;

/// Names and values of properties.
pub(crate) type Properties = BTreeMap<String, String>;

/// The characters that separate names from values, and properties from each other. Neither may contain these characters.
pub(crate) const SEPARATORS: [char; 2] = ['\u{1}', '\u{2}'];

/// The message id, which is the same for all copies.
pub(crate) const UNIQ_KEY: &str = "UNIQ_KEY";
/// The business key.
pub(crate) const KEYS: &str = "KEYS";
pub(crate) const TAGS: &str = "TAGS";

/// Prefix of the properties that this crate adds.
pub(crate) const PREFIX: &str = "x-idempotent-";
/// Headers that cannot be properties. The publisher sets this property, and it stays on the message.
pub(crate) const HEADERS: &str = "x-idempotent-headers";
/// Marks an empty body, which RocketMQ cannot send. The publisher sets this property, and it stays on the message.
pub(crate) const EMPTY: &str = "x-idempotent-empty";
/// The number of the compression of a body that cannot be decompressed. The property stays on all copies of the message, whose
/// body has the bytes that the broker stored.
pub(crate) const COMPRESSED: &str = "x-idempotent-compressed";
/// The properties with the prefix that stay on the message.
pub(crate) const OF_MESSAGE: [&str; 3] = [HEADERS, EMPTY, COMPRESSED];

/// Maximum length of all properties in bytes. The broker stores their length in 15 bits, after it and the client have added up to
/// 400 bytes.
pub(crate) const MAX_PROPERTIES: usize = i16::MAX as usize - 512;
/// Maximum length of the properties of a message that is published, so that each of its copies has room for further properties.
pub(crate) const MAX_PUBLISHED: usize = i16::MAX as usize - 4 * 1024;
/// Maximum length of the properties of a message that is retried, without those that the copy adds.
pub(crate) const MAX_RETRIED: usize = MAX_PROPERTIES - 1_536;
/// Maximum length of the properties of a message in its dead letter, without those that the letter adds.
pub(crate) const MAX_DEAD: usize = MAX_PROPERTIES - 3 * 1024;

/// Properties that the broker and the client set for one delivery. On a copy they would be wrong or have an effect: a copy with
/// `TRAN_MSG` waits for a commit that never arrives.
const OF_ONE_DELIVERY: [&str; 34] = [
    "1ST_POP_TIME",
    "BORN_TIMESTAMP",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "CLUSTER",
    "CONSUME_START_TIME",
    "DELAY",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "EXTEND_UNIQ_INFO",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "ORIGIN_GROUP",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "POP_CK",
    "POP_CK_OFFSET",
    "PROPERTY_FORWARD_QUEUE_ID",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REDIRECT",
    "RETRY_TOPIC",
    "TRACE_ON",
    "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG",
    "TRANS_OFFSET",
    "WAIT",
    "__BORNHOST",
    "__CRC32#",
    "__STARTDELIVERTIME",
    "__transactionId__",
];
const PREFIXES_OF_ONE_DELIVERY: [&str; 4] = ["INNER_", "TIMER_", "TRAN_", "__RMQ.TRANSIENT."];

/// Returns the length of properties in bytes, as the broker stores them.
pub(crate) fn length(properties: &Properties) -> usize {
    properties.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
}

/// Returns whether the broker or the client sets this property for one delivery only.
pub(crate) fn is_of_one_delivery(name: &str) -> bool {
    OF_ONE_DELIVERY.contains(&name) || PREFIXES_OF_ONE_DELIVERY.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a producer may use the name for a header.
pub(crate) fn is_free_name(name: &str) -> bool {
    let reserved = is_of_one_delivery(name) || [UNIQ_KEY, KEYS, TAGS].contains(&name);
    as_property(name.as_bytes()).is_some() && !name.starts_with(PREFIX) && !reserved
}

/// Returns the text if RocketMQ transmits it unchanged as a name or value.
pub(crate) fn as_property(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    (!text.is_empty() && !text.contains(SEPARATORS)).then_some(text)
}
