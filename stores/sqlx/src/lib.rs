//! Stores of `idempotent-rs` in SQL databases.
//!
//! `SqliteStore` (feature `sqlite`) is the embedded default: durable, without a server. `PostgresStore` (feature `postgres`)
//! and `MySqlStore` (feature `mysql`) share records between many
//! machines. In the caller's transaction, `VersionGuard` accepts only newer updates, and `UniqueKeys` accepts each key once.
//! `Outbox` (feature `outbox`) sends messages that are written in the transaction of a state change. `DelayTable` (feature
//! `delay`) stores tasks that are scheduled in a transaction until they are due.
//!
//! Suggested reading order: `table` and `schema` (tables and migrations), `row` (reading a record), `answer` (answers to
//! claims), `server` (the stores of database servers), a dialect, and `inbox` (effect and record in one transaction). A dialect
//! supplies statements, a connection and its errors. [`protocol`](idempotent_core::protocol) takes every decision that is
//! possible outside of a statement.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Public traits of the outbox and of the delay table refer to types of private modules.
#![cfg_attr(not(any(feature = "delay", feature = "outbox")), allow(unreachable_pub))]
// Without a database, this crate is empty.
#![cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod answer;
#[cfg(any(feature = "delay", feature = "outbox"))]
mod capped_count;
mod catalog;
#[cfg(feature = "delay")]
mod delay;
mod inbox;
mod lost_result;
#[cfg(feature = "mysql")]
mod mysql;
mod order;
#[cfg(feature = "outbox")]
mod outbox;
#[cfg(any(feature = "delay", feature = "outbox"))]
mod packed;
#[cfg(feature = "postgres")]
mod postgres;
mod purge_pause;
mod row;
mod schema;
mod search;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg_attr(not(any(feature = "delay", feature = "outbox")), allow(dead_code, reason = "migrations need a part of it"))]
mod sql_database;
#[cfg(feature = "sqlite")]
mod sqlite;
mod steps;
mod table;
#[cfg(any(feature = "delay", feature = "outbox"))]
mod table_database;
mod unique;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod version;

#[cfg(any(feature = "delay", feature = "outbox"))]
pub use self::capped_count::CappedCount;
#[cfg(feature = "delay")]
pub use self::delay::{
    DelayDb, DelayTable, DelayTableBacklog, DelayTableBuilder, DelayTableCounts, DelayTableDeadLetters,
    DelayTableSource, DelayTableTag, ScheduledTask,
};
pub use self::inbox::{Inbox, InboxTransaction, StepTransaction};
#[cfg(feature = "mysql")]
pub use self::mysql::{MySqlStore, MySqlStoreBuilder};
#[cfg(feature = "outbox")]
pub use self::outbox::{
    AuditEntry, ConsumerProgress, DeferReason, Enqueued, Outbox, OutboxBacklog, OutboxBuilder, OutboxCounts, OutboxDb,
    OutboxEntry, OutboxError, OutboxErrorKind, OutboxRecord, OutboxStatus, QueueOffset, Relay, RelayCounters,
    RelayCounts, RelayRound, ResendDecision, ResendPolicy,
};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresStore, PostgresStoreBuilder};
pub use self::schema::{SchemaProblem, SchemaProblemKind, SchemaStatus, SchemaStep};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteStore, SqliteStoreBuilder, SqliteTier, Synchronous};
pub use self::unique::{UniqueKeyConnection, UniqueKeys};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::version::{VersionCheck, VersionConnection, VersionGuard};
/// The release of sqlx whose pools, transactions and errors are in the API of this crate. A new major version of sqlx is a new
/// major version of this crate.
pub use sqlx;
