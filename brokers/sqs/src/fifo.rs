//! Message groups and deduplication ids of FIFO queues.
use idempotent_mq::{KeyFrom, Message, OutboundMessage};
use sha2::{Digest, Sha256};

/// The end of the name of each FIFO queue.
pub(crate) const SUFFIX: &str = ".fifo";

/// Returns the ordering key of messages of a FIFO queue, for [`ordered_by`](idempotent_mq::Messages::ordered_by): their message
/// group.
///
/// SQS delivers several messages of one group together. With this ordering key, the consumer runs them one at a time, and defers
/// the messages after one that is retried. The key is the hash in [`Position::partition`](idempotent_mq::Position::partition), so
/// two groups may share a key, and then wait for each other.
///
/// A message of a standard queue has no group, so the consumer dead-letters the message.
///
/// ```
/// use idempotent_mq::{KeyFrom, Messages};
///
/// let messages = Messages::raw().ordered_by(idempotent_sqs::message_group()).keyed(KeyFrom::message_id());
/// # let _ = messages;
/// ```
pub fn message_group<T: 'static>() -> KeyFrom<T> {
    KeyFrom::message("message group", |message: &Message<T>| message.delivery.position.partition)
}

/// Returns the hash of a message group (FNV-1a).
pub(crate) fn group_hash(group: &str) -> u32 {
    group.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Returns the group of a message that is published: its aggregate, or a group of its own.
pub(crate) fn group_of(message: &OutboundMessage) -> String {
    identifier(message.aggregate.as_ref().unwrap_or(&message.id))
}

/// Returns a text that SQS accepts as a group or a deduplication id: the text itself, or its SHA-256 in hexadecimal digits.
pub(crate) fn identifier(text: &str) -> String {
    let is_valid = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { text.to_owned() } else { format!("{:x}", Sha256::digest(text)) }
}

/// The maximum length of a group and of a deduplication id.
const LONGEST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_kept_if_sqs_accepts_it_and_hashed_otherwise() {
        let longest = "a".repeat(LONGEST);
        for valid in ["order-17", "!~", &longest] {
            assert_eq!(identifier(valid), valid);
        }
        let too_long = "a".repeat(LONGEST + 1);
        for invalid in ["", "a b", "gr\u{f6}\u{df}e", "\0", &too_long] {
            let hashed = identifier(invalid);
            assert!(hashed.len() == 64 && hashed.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hashed}");
        }
        assert_ne!(identifier("a b"), identifier("a c"));
    }

    #[test]
    fn a_group_is_the_aggregate_or_the_message_alone() {
        let message = OutboundMessage::new("orders.fifo", "m-1", "");
        assert_eq!(group_of(&message), "m-1");
        assert_eq!(group_of(&message.aggregate("order-17")), "order-17");
        // A published test vector.
        assert_eq!(group_hash("foobar"), 0xbf9c_f968);
    }
}
