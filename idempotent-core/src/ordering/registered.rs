//! What became of numbers that a producer registered.

/// An answer of [`Executor::register`](crate::Executor::register).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Registered {
    /// Numbers that larger ones wait for from now on, or that were known before.
    pub expected: usize,
    /// Numbers that are too late: one at least as large was let in already. They are dealt with by
    /// [`on_late`](crate::Policy::on_late) when they come.
    pub late: usize,
}
