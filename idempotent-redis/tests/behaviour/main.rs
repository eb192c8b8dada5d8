//! What runs over a real server come to. Simulated worlds go through the same cases with exact times (the facade's
//! `tests/behaviour`); here it is the scripts, the connection and the server's own clock.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
mod crash;
mod lease;
mod order;
mod races;
mod settle;
#[path = "../support/mod.rs"]
mod support;
mod ttl;
mod wait;
