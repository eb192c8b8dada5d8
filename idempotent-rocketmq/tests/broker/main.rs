//! The source and the publisher on a real RocketMQ.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "tests")]
#![recursion_limit = "512"]
mod away;
mod dead_letters;
mod ends;
mod outages;
mod outbox;
#[path = "../common/raw.rs"]
mod raw;
mod reading;
mod runtime;
mod world;
