//! The number of a message in its stream.
use std::fmt;

/// The sequence number of a message and the time at which the stream stored it.
///
/// A server that is killed may lose the last messages of a stream, and then uses their sequence numbers again. The time
/// distinguishes such messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MessageNumber {
    pub(crate) sequence: u64,
    /// In nanoseconds since 1970.
    pub(crate) stored_at: i128,
}

impl MessageNumber {
    /// Parses the text of a number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (sequence, stored_at) = text.split_once('-')?;
        Some(Self { sequence: sequence.parse().ok()?, stored_at: stored_at.parse().ok()? })
    }
}

impl fmt::Display for MessageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.sequence, self.stored_at)
    }
}
