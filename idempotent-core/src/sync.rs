//! The locks and counters of the memory store and of the waiters, from one place: in this crate's own tests they are
//! shuttle's, which tries out how threads may take turns (`store/memory/interleavings.rs`, `waiters/interleavings.rs`).
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicUsize};

#[cfg(test)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicUsize};
