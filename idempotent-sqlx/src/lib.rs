//! Stores of `idempotent-rs` in SQL databases.
//!
//! `SqliteStore` (feature `sqlite`) is the embedded default: durable, no server.
//!
//! Read in this order: `table` and `schema` (what is made), `row` (how it is read), `answer` (what it means), then
//! a dialect. A dialect supplies statements, a connection and its errors; every decision that can be taken outside
//! of a statement is [`protocol`](idempotent_core::protocol)'s.
#[cfg(feature = "sqlite")]
mod answer;
#[cfg(feature = "sqlite")]
mod row;
#[cfg(feature = "sqlite")]
mod schema;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod table;

#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteStore, SqliteStoreBuilder, Synchronous};
