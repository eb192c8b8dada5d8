//! What the stores of database servers have in common: a pool, and one statement for each step. A
//! [dialect](Dialect) supplies the texts, how they are bound and sent, and what its errors mean.
//!
//! A claim's statement grants an absent key; everything else a claim may lead to is decided by
//! [`protocol`](idempotent_core::protocol) on the row that was read, and written only if that row still stands. What
//! owners do (renew, complete, release) is one guarded statement each; where it wrote nothing, the protocol says what
//! that means.
mod ask;
mod batch;
mod browse;
mod builder;
mod error;
mod inbox;
mod journal;
mod lately;
mod link;
mod open;
mod order;
mod pool;
mod purge;
mod store;
mod text;
mod texts;
mod tls;
mod via;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, Key, OwnerToken, Record, StoreError, Timestamp};
use sqlx::error::DatabaseError;
use sqlx::{Database, Transaction};

pub(crate) use self::ask::Put;
pub(crate) use self::batch::in_packets;
pub(crate) use self::builder::{Settings, Target, server_builder};
pub(crate) use self::error::{Place, Told, When};
pub(crate) use self::inbox::{Inside, server_inbox};
pub(crate) use self::journal::{Steps, server_journal};
pub(crate) use self::lately::Lately;
pub(crate) use self::link::{Hindrance, Link, Sent, settled};
pub(crate) use self::open::connect;
pub(crate) use self::order::{Lines, server_order};
pub(crate) use self::pool::Pool;
#[cfg(feature = "mysql")]
pub(crate) use self::pool::Prepare;
pub(crate) use self::purge::Step;
pub(crate) use self::store::server_store;
pub(crate) use self::text::{Ask, Query, Text, Value};
pub(crate) use self::texts::{Texts, completed, ended, guard, guard_inside, plus, renewed, sound, vacated};
pub(crate) use self::tls::Tls;
pub(crate) use self::via::Via;
use crate::inbox::Last;
use crate::row::{self, COLUMNS, Cells, signed};

/// Longer than any statement of ours runs.
const LONGEST_STATEMENT: Duration = Duration::from_secs(60);

/// What a database supplies.
pub(crate) trait Dialect: Debug + Send + Sync + Sized + 'static {
    type Db: Database<Row: Cells>;
    /// What its statements bind.
    type Value: From<Value> + Clone + Debug + Send + Sync;

    /// What it is called in errors.
    const NAME: &'static str;
    /// The parameter of its URL that says how TLS is used.
    const TLS: &'static str;

    fn bind(query: Query<Self>, value: Self::Value) -> Query<Self>;

    /// How many rows were written.
    fn execute(query: Query<Self>, connection: &mut Connection<Self>) -> impl Asked<u64>;
    /// The first row.
    fn first(query: Query<Self>, connection: &mut Connection<Self>) -> impl Asked<Option<Row<Self>>>;
    /// All rows.
    fn all(query: Query<Self>, connection: &mut Connection<Self>) -> impl Asked<Vec<Row<Self>>>;

    /// What a refusal of the server lets a caller conclude.
    fn told(error: &dyn DatabaseError) -> Told;
    /// Whether a statement failed because of others, and nothing of it was done.
    fn hindrance(error: &dyn DatabaseError) -> Option<Hindrance>;

    /// The number of a key's lock, where claims take one.
    fn lock(&self, _: &Key) -> Option<i64> {
        None
    }

    /// Bytes of the largest value that it takes.
    fn most(&self) -> usize {
        usize::MAX
    }

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
    /// Whether a statement that failed so was the end of the transaction it stood in.
    fn ends(&self, error: &dyn DatabaseError) -> bool;
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

/// What a driver's future comes to.
pub(crate) trait Asked<T>: Future<Output = Result<T, sqlx::Error>> + Send {}
impl<T, F: Future<Output = Result<T, sqlx::Error>> + Send> Asked<T> for F {}

/// What a dialect's future comes to.
pub(crate) trait Answered<T>: Future<Output = Result<T, StoreError>> + Send {}
impl<T, F: Future<Output = Result<T, StoreError>> + Send> Answered<T> for F {}

pub(crate) type Connection<D> = <<D as Dialect>::Db as Database>::Connection;
pub(crate) type Row<D> = <<D as Dialect>::Db as Database>::Row;

/// What owners do to many keys at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Many {
    /// id, owner, number, lease
    Renew,
    /// id, owner, number, value, retention
    Complete,
}

/// A record, the time it was read at, and whether the statement that read it granted it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) record: Record,
    pub(crate) now: Timestamp,
    pub(crate) granted: bool,
}

/// A store, but for its name.
#[derive(Debug)]
pub(crate) struct Plan<D: Dialect> {
    pub(crate) dialect: D,
    pub(crate) texts: Texts,
    pub(crate) inside: Inside,
    /// Where it keeps the steps of runs.
    pub(crate) steps: Steps,
    /// And the order tables of streams.
    pub(crate) lines: Lines,
    pub(crate) link: Link<D>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) lately: Lately,
}

impl<D: Dialect> Plan<D> {
    /// The time, where a clock was handed in; every statement's last parameter then.
    pub(crate) fn time(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| signed(clock.wall()))
    }

    pub(crate) async fn look(&self, key: &Key) -> Result<Option<Seen>, StoreError> {
        settled(Via::pool(self).look(key).await?)
    }

    /// Reads a row of a claim or a look: a record, then the time, then whether it was granted.
    pub(crate) fn seen(&self, row: &Row<D>) -> Result<Seen, StoreError> {
        let record = row::record(row)?;
        let now = Timestamp(self.number(row, COLUMNS.len())?.unsigned_abs());
        let granted = self.number(row, COLUMNS.len() + 1)? != 0;
        // A statement reads its clock when it begins, and may see a write that began a moment later.
        let is_a_moment = record.updated_at - now <= LONGEST_STATEMENT;
        Ok(Seen { now: if is_a_moment { now.max(record.updated_at) } else { now }, record, granted })
    }

    /// A whole number that a statement of ours tells.
    pub(crate) fn number(&self, row: &Row<D>, at: usize) -> Result<i64, StoreError> {
        let told = row.int(at).map_err(|error| self.link.place.error::<D>(When::Asking, error))?;
        Ok(told.unwrap_or_default())
    }

    /// With the time as the last one.
    pub(crate) fn timed(&self, ask: Ask<D>) -> Ask<D> {
        match self.time() {
            Some(time) => ask.bind(time),
            None => ask,
        }
    }
}

pub(crate) fn id(key: &Key) -> Vec<u8> {
    key.hash().to_be_bytes().to_vec()
}

/// Two letters for each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = b"0123456789abcdef";
    let letters =
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| char::from(digits[usize::from(half)]));
    letters.collect()
}

pub(crate) fn owner(token: OwnerToken) -> Vec<u8> {
    token.0.to_be_bytes().to_vec()
}
