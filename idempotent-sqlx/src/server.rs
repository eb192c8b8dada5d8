//! What the stores of database servers have in common: a pool, and one statement for each step. A
//! [dialect](Dialect) supplies the texts, how they are bound and sent, and what its errors mean.
//!
//! A claim's statement grants an absent key; everything else a claim may lead to is decided by
//! [`protocol`](idempotent_core::protocol) on the row that was read, and written only if that row still stands. What
//! owners do (renew, complete, release) is one guarded statement each; where it wrote nothing, the protocol says what
//! that means.
mod batch;
mod browse;
mod connect;
mod dialect;
mod driver;
mod error;
mod inbox;
mod order;
mod pool;
mod purge;
mod recent_keys;
mod refusal;
mod requests;
mod runner;
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
pub(crate) use self::dialect::{BatchKind, Dialect, PurgeStep, WriteResult};
pub(crate) use self::driver::{Driver, DriverFuture, Query};
pub(crate) use self::error::{ErrorContext, Phase};
pub(crate) use self::inbox::server_inbox;
pub(crate) use self::order::server_order;
pub(crate) use self::pool::Pool;
#[cfg(feature = "mysql")]
pub(crate) use self::pool::Prepare;
pub(crate) use self::recent_keys::RecentKeys;
pub(crate) use self::refusal::{Contention, Refusal};
pub(crate) use self::runner::{StatementResult, StatementRunner, settled};
pub(crate) use self::settings::{Settings, Target, server_builder};
pub(crate) use self::statement::{BoundStatement, Statement};
pub(crate) use self::statements::{
    OrderStatements, Statements, StepStatements, TransactionStatements, completed, ended, guard, guard_inside, plus,
    renewed, sound, vacated,
};
pub(crate) use self::steps::server_steps;
pub(crate) use self::store::{FoundRecord, ServerStore};
pub(crate) use self::store_traits::server_store;
pub(crate) use self::target::StatementTarget;
pub(crate) use self::tls::TlsSettings;
pub(crate) use self::value::{Value, hex, id, in_packets};
