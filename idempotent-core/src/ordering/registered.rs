//! The result of registering numbers.

/// The result of [`Executor::register`](crate::Executor::register).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Registered {
    /// The number of registered numbers that larger ones wait for, including numbers registered before.
    pub expected: usize,
    /// The number of late numbers: an equal or larger one was admitted before. [`on_late`](crate::Policy::on_late)
    /// applies when they arrive.
    pub late: usize,
}
