//! Delayed work, on each database.
#![cfg(all(feature = "delay", feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod clock;
mod mysql;
mod postgres;
mod sqlite;
mod wheel;
