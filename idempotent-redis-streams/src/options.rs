//! Options of a source.
use std::time::Duration;

/// How long a read waits on the server. Less than the second that `close` is given.
pub(crate) const BLOCK: Duration = Duration::from_millis(500);

/// From where a new group reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Start {
    /// All that is in the stream.
    Beginning,
    /// What is added from now on.
    New,
}

/// What stays in the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Keep {
    /// All of it, until somebody else trims it.
    Everything,
    /// What some group has not read, or has not settled; and some more, since a stream is trimmed block by block. A group
    /// that nobody reads any more keeps everything.
    Unfinished,
    /// An entry is deleted when *this* group has settled it: only where no other group reads the stream.
    Unacknowledged,
}
