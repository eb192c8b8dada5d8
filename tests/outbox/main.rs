//! An outbox on SQLite, its relay and its consumers on Redis: a stream, and a delay queue; and the example
//! `outbox_payment` from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
mod delay;
mod payment;
mod streams;
mod world;
