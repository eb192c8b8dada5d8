//! The parts that the MySQL/MariaDB store and the PostgreSQL store share.
//!
//! [`Driver`] binds and sends statements and interprets errors. [`Dialect`] adds the statements and operations of a database.
//! [`ServerStore`] executes each operation as one statement on a connection of its pool.
//!
//! The claim statement grants an absent key. For an existing record, [`protocol`](idempotent_core::protocol) decides on the row
//! that was read, and the store writes the decision only if the row is unchanged. Renewal, completion and release are one
//! guarded statement each. If such a statement writes nothing, the protocol decides on the record.
mod batch;
mod connect;
mod dialect;
mod driver;
mod error;
mod health;
mod inbox;
mod order;
mod pool;
mod purge;
mod recent_keys;
mod requests;
mod run_transactions;
mod runner;
mod search;
mod settings;
mod statement;
mod statements;
mod steps;
mod store;
mod store_traits;
mod target;
mod tls;
mod value;

pub(crate) use self::connect::connect;
pub(crate) use self::dialect::{BatchKind, Dialect, DialectFuture, FailedProof, PurgeStep, WriteResult};
pub(crate) use self::driver::{Contention, Driver, DriverFuture, Query, Refusal};
pub(crate) use self::error::{ErrorContext, Phase};
pub(crate) use self::health::HealthQuery;
pub(crate) use self::inbox::server_inbox;
pub(crate) use self::order::server_order;
#[cfg(feature = "mysql")]
pub(crate) use self::pool::Prepare;
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) use self::pool::close_refused;
pub(crate) use self::pool::{LastRefusal, Pool};
pub(crate) use self::recent_keys::RecentKeys;
pub(crate) use self::run_transactions::run_mark;
pub(crate) use self::runner::{StatementResult, StatementRunner, settled};
pub(crate) use self::settings::{ServerSettings, ServerTarget, server_builder};
pub(crate) use self::statement::{BoundStatement, Statement};
pub(crate) use self::statements::{
    OrderStatements, RunTexts, Statements, StepStatements, TransactionStatements, completed, ended, guard, plus,
    renewed, sound, vacated, value_stored,
};
pub(crate) use self::steps::server_steps;
pub(crate) use self::store::{FoundRecord, ServerStore};
pub(crate) use self::store_traits::server_store;
pub(crate) use self::target::StatementTarget;
pub(crate) use self::tls::{TlsSettings, select_cryptography, unparsed};
#[cfg(feature = "postgres")]
pub(crate) use self::value::owner;
pub(crate) use self::value::{Value, hex, id, in_packets};
