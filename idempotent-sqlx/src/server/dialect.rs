//! What a database supplies: its texts, and how it claims, writes, settles and commits.
use idempotent_core::{Key, StoreError};
use sqlx::Transaction;

use super::driver::{Asked, Connection, Driver, Row};
use super::link::Sent;
use super::refusal::Hindrance;
use super::statement::Ask;
use super::store::{Plan, Seen};
use super::target::Via;
use super::value::Value;
use crate::inbox::Last;

/// What a database supplies.
pub(crate) trait Dialect: Driver {
    /// Sends a claim: the grant, or what stands there. None: somebody was faster, or has the key in hand.
    fn claim(via: &mut Via<'_, Self>, claim: Ask<Self>, key: &Key) -> impl Answered<Sent<Option<Seen>>>;
    /// Sends a write over a record that was read, or one that [`Inside::complete`] is.
    fn put(via: &mut Via<'_, Self>, put: Ask<Self>) -> impl Answered<Put>;
    /// Sends claims, of different keys: for as many as it can the grant, or what stands there.
    fn claim_all(plan: &Plan<Self>, claims: Vec<Vec<Value>>) -> impl Answered<Sent<Vec<Row<Self>>>>;
    /// Sends renewals or completions, of different keys: the hashes of those that were written.
    fn settle_all(plan: &Plan<Self>, what: &Many, asks: Vec<Vec<Value>>) -> impl Answered<Sent<Vec<u128>>>;
    /// What a transaction of a run begins with, where it is not what sqlx says.
    const BEGIN: Option<&'static str>;
    /// Fails where the transaction of a run is not the one any more that it was begun as.
    fn stands(connection: &mut Connection<Self>) -> impl Asked<()>;
    /// Commits the transaction of a run.
    fn commit(transaction: Transaction<'static, Self::Db>, last: Last) -> impl Asked<()>;
    /// The clock, as its statements have it.
    const NOW: &'static str;
    /// A text's bytes, as a statement without parameters has them.
    fn literal(bytes: &[u8]) -> String;
    /// Gives the claim of an open transaction its value; fails where it is not there. The literals of the key's hash, the owner,
    /// the value; the time of it, and when it expires.
    fn valued(plan: &Plan<Self>, literals: [String; 3], now: &str, expires: &str) -> String;
    /// Whether no open transaction has the key in hand. What one that is over has written is seen by the next statement.
    fn is_free(plan: &Plan<Self>, key: &Key) -> impl Answered<bool>;
    /// Looks at the next records behind an id, and removes at most `room` of them that are past their time.
    fn purge(plan: &Plan<Self>, after: Vec<u8>, room: i64) -> impl Answered<Sent<Step>>;
}

/// What a dialect's future comes to.
pub(crate) trait Answered<T>: Future<Output = Result<T, StoreError>> + Send {}
impl<T, F: Future<Output = Result<T, StoreError>> + Send> Answered<T> for F {}

/// What owners do to many keys at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Many {
    /// id, owner, number, lease
    Renew,
    /// id, owner, number, value, retention
    Complete,
}

/// What became of a record that was to be written over another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Put {
    Done,
    /// The record is another by now.
    Raced,
    /// Somebody has the key in hand.
    Busy,
}

/// What became of a step of the walk.
#[derive(Debug)]
pub(crate) struct Step {
    /// The last id that was looked at, if there may be more behind it.
    pub(crate) next: Option<Vec<u8>>,
    pub(crate) removed: usize,
}

impl From<Hindrance> for Put {
    fn from(how: Hindrance) -> Self {
        match how {
            Hindrance::Raced => Self::Raced,
            Hindrance::Locked => Self::Busy,
        }
    }
}
