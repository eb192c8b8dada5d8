//! Tests of the stores, the inbox, the outbox and the delay table, in one binary: it is linked once, and what is generic
//! is compiled once.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
// The same tests for each database, by its own `place`.
#![allow(clippy::duplicate_mod)]
mod delay;
mod inbox;
mod insert_only;
mod mysql;
mod outbox;
mod postgres;
mod processes;
mod protocol;
mod read_only;
mod records;
mod released_migrations;
mod schema_status;
mod sequence;
mod setup;
mod steps;
mod support;
mod tables;
mod versions;
