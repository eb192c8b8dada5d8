//! Notifications to the sources of this process.
use std::time::Instant;

/// A notification that tasks were written in this process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wakeup {
    /// A task that is due at this time, by the database's clock. `open`: its transaction may not have committed.
    At { at: i64, open: bool },
    /// A task that is due at this time of this process.
    In { at: Instant, open: bool },
    /// A task with an unknown time: the sources look.
    Look,
}

/// The capacity of the channel. A source that misses notifications looks for due tasks.
pub(super) const WAKEUP_CAPACITY: usize = 64;
