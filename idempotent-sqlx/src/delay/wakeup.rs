//! Notifications to the sources of this process.
use std::time::Instant;

/// What was written in this process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wakeup {
    /// Work that is due at this time of the database's; `open`: its transaction may not have committed.
    At { at: i64, open: bool },
    /// Work that is due then, as this process counts.
    In { at: Instant, open: bool },
    /// Something.
    Look,
}

/// Words of the bell that may be unheard; who has missed some looks.
pub(super) const WAKEUP_CAPACITY: usize = 64;
