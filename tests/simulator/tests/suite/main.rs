//! Tests of the simulator, and of the laws of the test kit: each law detects a store that breaks it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, unreachable_pub)]
mod cas_mutants;
mod mutants;
mod scale;
mod sim;
mod sim_command;
mod skew_mutants;
mod wrappers;
