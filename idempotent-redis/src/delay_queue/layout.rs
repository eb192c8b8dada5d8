//! Keys of a topic, and the assignment of messages to slots.
use std::sync::Arc;

use idempotent_mq::{DelayError, DelayErrorKind};

/// The keys of one slot. All of them share a hash tag, so that a cluster keeps them on one node.
#[derive(Debug)]
pub(crate) struct SlotKeys(pub(crate) [String; PARTS.len()]);

/// Key suffixes, in the order of the scripts. `due` and `rank` contain the pending messages, by time and by priority;
/// `held` contains the messages in delivery.
const PARTS: [&str; 9] = ["due", "rank", "held", "msg", "state", "ids", "dead", "letter", "meta"];

impl SlotKeys {
    pub(crate) fn new(namespace: &str, topic: &str, index: u16) -> Self {
        let slot = format!("{namespace}:delay:{{{}:{index}}}", encoded(topic));
        Self(PARTS.map(|part| format!("{slot}:{part}")))
    }

    /// Returns the slot's name in notifications.
    pub(crate) fn slot(&self) -> &str {
        self.0[0].strip_suffix(":due").unwrap_or(&self.0[0])
    }
}

#[derive(Debug)]
pub(crate) struct TopicLayout {
    pub(crate) name: Arc<str>,
    pub(crate) slots: Vec<Arc<SlotKeys>>,
}

impl TopicLayout {
    /// Creates the layout of a topic.
    ///
    /// # Errors
    /// `Refused` if the name is empty or too long.
    pub(crate) fn new(namespace: &str, name: &str, slots: u16) -> Result<Self, DelayError> {
        if name.is_empty() || name.len() > LONGEST {
            let text = format!("topic name has {} bytes; it must have 1 to {LONGEST} bytes", name.len());
            return Err(DelayError::new(DelayErrorKind::Refused, text));
        }
        let slots = (0..slots).map(|index| Arc::new(SlotKeys::new(namespace, name, index))).collect();
        Ok(Self { name: name.into(), slots })
    }

    pub(crate) fn slot_of(&self, basis: &str) -> u16 {
        // A topic has at least one slot, and the number fits into `u32`.
        let slots = u32::try_from(self.slots.len()).unwrap_or(u32::MAX).max(1);
        u16::try_from(crc32fast::hash(basis.as_bytes()) % slots).unwrap_or_default()
    }
}

/// Maximum length of topics, message ids and merge keys, in bytes.
pub(crate) const LONGEST: usize = 1_024;

/// Encodes all bytes but letters, digits and `-._` as `%XX`. Braces and colons would change the hash tag.
fn encoded(topic: &str) -> String {
    let mut text = String::with_capacity(topic.len());
    for byte in topic.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => text.push(char::from(byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Computes the slot like a server.
    fn cluster_slot(key: &str) -> u16 {
        let begin = key.find('{').map(|at| at + 1);
        let tag = begin.and_then(|at| Some(&key[at..at + key[at..].find('}').filter(|end| *end > 0)?]));
        crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key).as_bytes()) % 16_384
    }

    #[test]
    fn all_keys_of_a_slot_share_a_cluster_slot_for_any_topic_name() {
        for topic in ["orders_3", "a{b}", "{}", "}{", "{", "a}b", "größe", "a:b", "%7B", " ", "a\nb", "\0"] {
            for index in [0, 3, 1_023] {
                let keys = SlotKeys::new("idempotent", topic, index);
                let slots = keys.0.iter().map(|key| cluster_slot(key)).collect::<std::collections::BTreeSet<_>>();
                assert_eq!(slots.len(), 1, "{topic:?}: {keys:?}");
                assert!(keys.0.iter().all(|key| key.matches('{').count() == 1 && key.matches('}').count() == 1));
            }
        }
    }

    #[test]
    fn different_topics_have_different_keys() {
        let names = ["a", "a:0", "a%3A0", "A", "a{", "a}", "ä"];
        let keys: std::collections::BTreeSet<_> =
            names.iter().map(|name| SlotKeys::new("n", name, 0).0[0].clone()).collect();
        assert_eq!(keys.len(), names.len());
    }

    #[test]
    fn a_slot_basis_always_maps_to_the_same_slot_by_crc32() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        let topic = TopicLayout::new("n", "orders", 16).unwrap();
        assert_eq!(topic.slot_of("123456789"), 0xcbf4_3926_u32 as u16 % 16);
        assert_eq!(topic.slot_of("user-7"), topic.slot_of("user-7"));
        let all: std::collections::BTreeSet<_> = (0..500).map(|user| topic.slot_of(&format!("user-{user}"))).collect();
        assert_eq!(all.len(), 16, "every slot gets some");
    }
}
