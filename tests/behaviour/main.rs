//! What users were promised, on a virtual clock: over memory, SQLite, and private servers of PostgreSQL and MariaDB.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../common/servers.rs"]
mod servers;

mod lease;
mod nested;
mod settle;
mod steps;
mod wait;
