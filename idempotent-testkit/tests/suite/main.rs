//! Tests of the kit itself: each law notices a store that breaks it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, unreachable_pub)]
mod broker;
mod clock;
mod conformance;
mod fault;
mod history;
mod laws;
mod not_kept;
