//! Tests of the consumer: over a simulated broker on a virtual clock, and on threads of its own.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    missing_debug_implementations
)]
mod broker;
mod listener;
mod log;
mod memory_queue;
mod redrive;
mod simulated;
mod threads;
mod world;
