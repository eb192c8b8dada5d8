//! The consumer on a simulated broker and a virtual clock.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    missing_debug_implementations
)]

mod attempts;
mod batch;
mod breaker;
mod bulk;
mod chain;
mod drain;
mod flow;
mod handlers;
mod inputs;
mod order;
mod partitions;
mod points;
mod sequence;
mod storm;
