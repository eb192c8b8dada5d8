//! Ordering of calls, after a predecessor or by the numbers of a stream. The guide is [`docs::ordering`](crate::docs::ordering).
pub use idempotent_core::{
    AdmittedNumber, BrokenOrder, MAX_WAITING_RANGES, OnBrokenOrder, OnLate, Predecessor, Registered, Stream,
    StreamBlocker, StreamView, WaitingNumbers,
};
