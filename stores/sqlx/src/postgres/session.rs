//! The use of server sessions by a store.

/// The use of a server session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// True if waiting runs are notified.
    pub(super) listening: bool,
    /// True if another store has already looked for a pooler.
    pub(super) is_known: bool,
}

impl Session {
    pub(super) const NEW: Self = Self { listening: true, is_known: false };
}
