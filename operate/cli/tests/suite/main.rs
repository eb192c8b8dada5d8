//! The command line, run as a process: its output, its exit codes, and its changes in real stores and queues.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]
mod audit;
mod bad_input;
mod console;
mod dead;
mod delay;
mod doctor;
mod handbook;
mod http;
mod order;
mod outbox;
mod plan;
mod reference;
mod repairs;
mod servers;
mod sqlite;
mod support;
