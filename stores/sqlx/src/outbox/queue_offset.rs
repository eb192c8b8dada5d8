//! The position of a message in its queue, in a form that databases can compare.
use idempotent_mq::Position;

/// An offset within one queue; a greater one is later. An offset has two numbers, like an entry of a Redis stream;
/// the second is 0 for brokers with a single number. The stored bytes sort in the same order in each database.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct QueueOffset(u64, u64);

impl QueueOffset {
    /// Creates an offset from the number of an entry.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(number, 0)
    }

    /// Parses the offset of a [position](Position): `17`, or `1700000000000-3` as in Redis Streams. Returns `None`
    /// for any other text, which is not comparable.
    #[must_use]
    pub fn parse(offset: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        match offset.split_once('-') {
            Some((first, second)) => Some(Self(number(first)?, number(second)?)),
            None => Some(Self(number(offset)?, 0)),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0) << 64 | u128::from(self.1)).to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [first, second] = [bytes.get(..8)?, bytes.get(8..16)?].map(|half| half.iter().fold(0, shifted));
        (bytes.len() == 16).then_some(Self(first, second))
    }
}

fn shifted(number: u64, byte: &u8) -> u64 {
    number << 8 | u64::from(*byte)
}

/// Returns the name of the queue of a position: topic and partition.
pub(crate) fn queue_of(position: &Position) -> String {
    match position.partition {
        Some(partition) => format!("{}#{partition}", position.source),
        None => position.source.to_string(),
    }
}

/// Returns the offset of a position, if it is comparable with others.
pub(crate) fn place_of(position: &Position) -> Option<QueueOffset> {
    QueueOffset::parse(position.offset.as_deref()?)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn places_are_compared_as_numbers_and_their_bytes_as_they_are() {
        let order = ["9", "10", "1700000000000-9", "1700000000000-10", "1700000000001-0", "18446744073709551615"];
        let places = order.map(|text| QueueOffset::parse(text).expect(text));
        assert!(places.is_sorted_by(|one, two| one < two && one.to_bytes() < two.to_bytes()));
        assert!(places.iter().all(|place| QueueOffset::from_bytes(&place.to_bytes()) == Some(*place)));
        for none in ["", "-", "1-", "-1", "a", "1-2-3", "+1", "18446744073709551616", "AC1E"] {
            assert_eq!(QueueOffset::parse(none), None, "{none}");
        }
        assert_eq!(QueueOffset::from_bytes(&[0; 15]), None);
    }
}
