//! What a database supplies: its texts, and how it claims, writes, settles and commits.
use idempotent_core::{Key, StoreError};
use sqlx::Transaction;

use super::driver::{Connection, Driver, DriverFuture, Row};
use super::refusal::Contention;
use super::runner::StatementResult;
use super::statement::BoundStatement;
use super::store::{FoundRecord, ServerStore};
use super::target::StatementTarget;
use super::value::Value;
use crate::inbox::Last;

/// What a database supplies.
pub(crate) trait Dialect: Driver {
    /// Sends a claim: the grant, or what stands there. None: somebody was faster, or has the key in hand.
    fn claim(
        target: &mut StatementTarget<'_, Self>,
        claim: BoundStatement<Self>,
        key: &Key,
    ) -> impl DialectFuture<StatementResult<Option<FoundRecord>>>;
    /// Sends a write over a record that was read, or one that [`TransactionStatements::complete`] is.
    fn put(target: &mut StatementTarget<'_, Self>, put: BoundStatement<Self>) -> impl DialectFuture<WriteResult>;
    /// Sends claims, of different keys: for as many as it can the grant, or what stands there.
    fn claim_all(
        store: &ServerStore<Self>,
        claims: Vec<Vec<Value>>,
    ) -> impl DialectFuture<StatementResult<Vec<Row<Self>>>>;
    /// Sends renewals or completions, of different keys: the hashes of those that were written.
    fn settle_all(
        store: &ServerStore<Self>,
        what: &BatchKind,
        asks: Vec<Vec<Value>>,
    ) -> impl DialectFuture<StatementResult<Vec<u128>>>;
    /// What a transaction of a run begins with, where it is not what sqlx says.
    const BEGIN: Option<&'static str>;
    /// Fails where the transaction of a run is not the one any more that it was begun as.
    fn stands(connection: &mut Connection<Self>) -> impl DriverFuture<()>;
    /// Commits the transaction of a run.
    fn commit(transaction: Transaction<'static, Self::Db>, last: Last) -> impl DriverFuture<()>;
    /// The clock, as its statements have it.
    const NOW: &'static str;
    /// A text's bytes, as a statement without parameters has them.
    fn literal(bytes: &[u8]) -> String;
    /// Gives the claim of an open transaction its value; fails where it is not there. The literals of the key's hash, the owner,
    /// the value; the time of it, and when it expires.
    fn valued(store: &ServerStore<Self>, literals: [String; 3], now: &str, expires: &str) -> String;
    /// Whether no open transaction has the key in hand. What one that is over has written is seen by the next statement.
    fn is_free(store: &ServerStore<Self>, key: &Key) -> impl DialectFuture<bool>;
    /// Looks at the next records behind an id, and removes at most `room` of them that are past their time.
    fn purge(store: &ServerStore<Self>, after: Vec<u8>, room: i64) -> impl DialectFuture<StatementResult<PurgeStep>>;
}

/// What a dialect's future comes to.
pub(crate) trait DialectFuture<T>: Future<Output = Result<T, StoreError>> + Send {}
impl<T, F: Future<Output = Result<T, StoreError>> + Send> DialectFuture<T> for F {}

/// What owners do to many keys at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchKind {
    /// id, owner, number, lease
    Renew,
    /// id, owner, number, value, retention
    Complete,
}

/// What became of a record that was to be written over another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteResult {
    Done,
    /// The record is another by now.
    Raced,
    /// Somebody has the key in hand.
    Busy,
}

/// What became of a step of the walk.
#[derive(Debug)]
pub(crate) struct PurgeStep {
    /// The last id that was looked at, if there may be more behind it.
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
