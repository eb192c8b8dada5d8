//! Tests of the kit itself: each law notices a store that breaks it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, unreachable_pub)]
mod broker;
mod cas_mutants;
mod cases;
mod clock;
mod conformance;
mod fault;
mod history;
mod laws;
mod mutants;
mod not_kept;
mod sim;
mod sim_command;
mod wrappers;
