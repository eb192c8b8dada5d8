//! The locks and counters of the memory store and the waiters. This crate's own tests replace them by shuttle's, which
//! explores the interleavings of threads (`store/memory/interleavings.rs`, `waiters/interleavings.rs`).
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicUsize};

#[cfg(test)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicUsize};
