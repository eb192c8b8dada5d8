//! The [`Dialect`] trait: statements and operations that differ between MySQL/MariaDB and PostgreSQL.
use std::time::Duration;

use idempotent_core::store::HealthFinding;
use idempotent_core::{ClaimRequest, Key, StoreError};
use sqlx::error::DatabaseError;

use super::driver::{Connection, Contention, Driver, DriverFuture, Row};
use super::health::HealthQuery;
use super::runner::StatementResult;
use super::statement::{BoundStatement, Statement};
use super::statements::RunTexts;
use super::store::{FoundRecord, ServerStore};
use super::target::StatementTarget;
use super::value::Value;
use crate::inbox::EffectClaim;

/// A database's statements and operations.
pub(crate) trait Dialect: Driver {
    /// Sends a claim. Returns the granted or existing record, or `None` if another claim won or holds the key.
    fn claim(
        target: &mut StatementTarget<'_, Self>,
        claim: BoundStatement<Self>,
        key: &Key,
    ) -> impl DialectFuture<StatementResult<Option<FoundRecord>>>;
    /// Sends a conditional write over a record that was read, or the write that [`TransactionStatements::complete`] is.
    fn put(target: &mut StatementTarget<'_, Self>, put: BoundStatement<Self>) -> impl DialectFuture<WriteResult>;
    /// Sends claims of different keys. Returns the granted or existing records of as many keys as possible.
    fn claim_all(
        store: &ServerStore<Self>,
        claims: Vec<Vec<Value>>,
    ) -> impl DialectFuture<StatementResult<Vec<Row<Self>>>>;
    /// Sends renewals or completions of different keys. Returns the hashes of the keys that were written.
    fn settle_all(
        store: &ServerStore<Self>,
        what: &BatchKind,
        asks: Vec<Vec<Value>>,
    ) -> impl DialectFuture<StatementResult<Vec<u128>>>;
    /// Returns the statements about the transactions of runs, with this random mark.
    fn run_texts(mark: &str) -> RunTexts;
    /// Returns the meaning of an error of [`RunTexts`], or of [`completing`](Self::completing), for the transaction.
    fn proof(error: &dyn DatabaseError) -> Option<FailedProof>;
    /// Returns true if, by the rows of [`RunTexts::roll_back`], the server has rolled back the transaction for an error of the
    /// last statement.
    fn was_rolled_back(rows: &[Row<Self>]) -> bool;
    /// Returns true if the handler has changed the settings of the session, by one of the rows.
    fn is_changed(rows: &[Row<Self>]) -> bool;
    /// Marks the transaction as that of a claim of this owner, unless the claim has done so.
    fn mark_claim(connection: &mut Connection<Self>, owner: &str) -> impl DriverFuture<()>;
    /// Returns true if this is the transaction of [`mark_claim`](Self::mark_claim), or false if it is not, or if the completion
    /// itself compares the transaction.
    fn is_marked(connection: &mut Connection<Self>, owner: &str) -> impl DriverFuture<bool>;
    /// A statement that is the whole effect of a run, or [`Infallible`](std::convert::Infallible).
    type Effect: Send + Sync + 'static;
    /// Claims the key, executes the effect and records its result in one statement.
    fn claim_with(
        store: &ServerStore<Self>,
        request: &ClaimRequest,
        retain: Duration,
        effect: &Self::Effect,
    ) -> impl DialectFuture<EffectClaim>;
    /// The SQL expression of the clock.
    const NOW: &'static str;
    /// Returns an SQL literal for the bytes, for a statement without parameters.
    fn literal(bytes: &[u8]) -> String;
    /// Returns the statement that completes the claim of an open transaction by these assignments. The statement fails if it
    /// changes no row. The literals are those of the key's hash and of the owner.
    fn completing(store: &ServerStore<Self>, literals: [String; 2], set: &str) -> String;
    /// Returns true if no open transaction holds the key. The next statement sees the writes of an ended transaction.
    fn is_free(store: &ServerStore<Self>, key: &Key) -> impl DialectFuture<bool>;
    /// Scans the next records after an id, and removes at most `room` expired ones.
    fn purge(store: &ServerStore<Self>, after: Vec<u8>, room: i64) -> impl DialectFuture<StatementResult<PurgeStep>>;
    /// A query of the server's limit of connections.
    const MAX_CONNECTIONS: &'static str;
    /// Returns a statement without parameters.
    fn statement(sql: &str) -> Statement;
    /// Returns the quoted name of the record table.
    fn table(store: &ServerStore<Self>) -> &str;
    /// Returns the checks of the server's settings and of the table.
    fn health_queries(store: &ServerStore<Self>) -> Vec<HealthQuery>;
    /// Runs the checks that are more than a query. They write nothing.
    fn health(store: &ServerStore<Self>) -> impl DialectFuture<Vec<HealthFinding>>;
}

/// The result of a proof that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailedProof {
    /// The transaction is not the one that was marked.
    Ended,
    /// The transaction is the marked one, and the record of the run is not there.
    NoRecord,
}

/// A future of a dialect's operation.
pub(crate) trait DialectFuture<T>: Future<Output = Result<T, StoreError>> + Send {}
impl<T, F: Future<Output = Result<T, StoreError>> + Send> DialectFuture<T> for F {}

/// A kind of batch of owners' requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchKind {
    /// id, owner, number, lease
    Renew,
    /// id, owner, number, value, retention
    Complete,
}

/// The result of a conditional write over a record that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteResult {
    Done,
    /// Another writer has changed the record.
    Raced,
    /// Another transaction holds the key.
    Busy,
}

/// The result of one purge statement.
#[derive(Debug)]
pub(crate) struct PurgeStep {
    /// The last scanned id, if there may be more records after it.
    pub(crate) next: Option<Vec<u8>>,
    pub(crate) removed: usize,
}

impl From<Contention> for WriteResult {
    fn from(how: Contention) -> Self {
        match how {
            Contention::Raced => Self::Raced,
            Contention::Locked => Self::Busy,
        }
    }
}
