//! Options of a source.
use std::time::Duration;

/// Time that a read blocks on the server. Shorter than the second that `close` may take.
pub(crate) const BLOCK: Duration = Duration::from_millis(500);

/// The position at which a new group starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StartPosition {
    /// At the first entry of the stream.
    Beginning,
    /// At the next entry that is added.
    New,
}

/// The entries that remain in the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TrimPolicy {
    /// All entries, until another program trims the stream.
    Everything,
    /// Entries that some group has not read or not settled, and a few more, because streams are trimmed in blocks. An
    /// unused group keeps all entries.
    Unfinished,
    /// Entries that *this* group has not settled. Use this only if no other group reads the stream.
    Unacknowledged,
}
