//! The outbox, on each database.
#![cfg(all(feature = "mysql", feature = "outbox", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod broker;
mod line;
mod mutant;
mod mutants;
mod mysql;
mod postgres;
mod sqlite;
#[path = "../support/mod.rs"]
mod support;
mod told;
