//! What MariaDB and MySQL supply to the plan.
use std::collections::{BTreeMap, HashSet};

use idempotent_core::{Key, StoreError};
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySql, MySqlConnection, MySqlRow};
use sqlx::{MySqlPool, Row, Transaction, ValueRef};

use super::server_version::Server;
use super::sql::{Maker, NOW};
use super::{error, inbox};
use crate::inbox::Last;
use crate::row::Cells;
use crate::server::{
    Ask, Asked, Dialect, Driver, Hindrance, Many, Plan, Put, Query, Seen, Sent, Settings, Step, Text, Told, Value, Via,
    hex, in_packets, settled,
};

/// Records looked at in one step of a purge, and so the most that are removed in one transaction.
const STEP: i64 = 500;
/// What a statement has beside a value, in bytes.
const AROUND: usize = 4 << 10;

#[derive(Debug)]
pub(crate) struct My {
    pub(super) maker: Maker,
    pub(super) server: Server,
    /// $1 the key's hash: fails where somebody has it in hand.
    pub(super) free: Text,
    /// The settings of the builder, and whether it was told to use the statements for MySQL.
    pub(super) opened_with: (Settings<MySqlPool>, bool),
}

impl Driver for My {
    type Db = MySql;
    type Value = Value;

    const NAME: &'static str = "MariaDB or MySQL";
    const TLS: &'static str = "ssl-mode";

    fn bind(query: Query<Self>, value: Value) -> Query<Self> {
        match value {
            Value::Int(number) => query.bind(number),
            Value::Bytes(bytes) => query.bind(bytes),
        }
    }

    async fn execute(query: Query<Self>, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
        Ok(query.execute(connection).await?.rows_affected())
    }

    fn first(query: Query<Self>, connection: &mut MySqlConnection) -> impl Asked<Option<MySqlRow>> {
        query.fetch_optional(connection)
    }

    fn all(query: Query<Self>, connection: &mut MySqlConnection) -> impl Asked<Vec<MySqlRow>> {
        query.fetch_all(connection)
    }

    fn told(error: &dyn DatabaseError) -> Told {
        error::told(error)
    }

    fn hindrance(error: &dyn DatabaseError) -> Option<Hindrance> {
        error::hindrance(error)
    }

    fn most(&self) -> usize {
        self.server.packet.saturating_sub(AROUND)
    }

    fn ends(&self, error: &dyn DatabaseError) -> bool {
        match Self::hindrance(error) {
            Some(Hindrance::Raced) => true,
            Some(Hindrance::Locked) => self.server.unforgiving,
            None => false,
        }
    }
}

impl Dialect for My {
    async fn claim(via: &mut Via<'_, Self>, claim: Ask<Self>, key: &Key) -> Result<Sent<Option<Seen>>, StoreError> {
        if via.plan.dialect.server.returning {
            return match via.first(claim).await?.map(|row| row.map(|row| via.plan.seen(&row)).transpose())? {
                Sent::Done(None) => via.look(key).await,
                told => Ok(told),
            };
        }
        // Where it would wait for another's transaction, the look in one says so at once.
        if via.is_open() {
            match via.look(key).await? {
                Sent::Done(None) => {}
                told => return Ok(told),
            }
        }
        let inserted = match via.execute(claim).await? {
            Sent::Done(rows) => rows > 0,
            Sent::Hindered(how, error) => return Ok(Sent::Hindered(how, error)),
        };
        via.look(key).await?.map(|seen| Ok(seen.map(|seen| Seen { granted: inserted, ..seen })))
    }

    async fn put(via: &mut Via<'_, Self>, put: Ask<Self>) -> Result<Put, StoreError> {
        Ok(match via.execute(put).await? {
            Sent::Done(1..) => Put::Done,
            Sent::Done(0) => Put::Raced,
            Sent::Hindered(how, _) => how.into(),
        })
    }

    async fn claim_all(plan: &Plan<Self>, mut claims: Vec<Vec<Value>>) -> Result<Sent<Vec<MySqlRow>>, StoreError> {
        let ids: Vec<Value> = claims.iter().filter_map(|claim| claim.first().cloned()).collect();
        // A key that comes twice is ignored the second time: so few numbers of rows need a text of their own.
        let count = rounded(claims.len());
        if let Some(last) = claims.last().cloned() {
            claims.resize(count, last);
        }
        let Self { maker, server, .. } = &plan.dialect;
        let insert = plan.timed(Ask::new(&maker.claim_all(count)).bind_all(claims.into_iter().flatten()));
        let sent = match server.returning {
            true => plan.link.all(insert).await?,
            false => plan.link.execute(insert).await?.map(|_| Ok(Vec::new()))?,
        };
        let Sent::Done(mut rows) = sent else { return Ok(sent) };
        let there: HashSet<Vec<u8>> = rows.iter().filter_map(id).collect();
        let mut left: Vec<Value> = ids.into_iter().filter(|id| !is_in(&there, id)).collect();
        if let Some(last) = left.last().cloned() {
            left.resize(rounded(left.len()), last);
            let look = plan.timed(Ask::new(&maker.look_all(left.len())).bind_all(left));
            rows.extend(settled(plan.link.all(look).await?)?);
        }
        Ok(Sent::Done(rows))
    }

    async fn settle_all(plan: &Plan<Self>, what: &Many, asks: Vec<Vec<Value>>) -> Result<Sent<Vec<u128>>, StoreError> {
        let mut written = Vec::with_capacity(asks.len());
        for (span, asks) in alike(asks) {
            for asks in in_packets(asks) {
                let hashes: Vec<u128> = asks.iter().filter_map(|ask| hash(ask.first()?)).collect();
                if settle_packet(plan, *what, span, asks).await? == hashes.len() as u64 {
                    written.extend(hashes);
                }
            }
        }
        Ok(Sent::Done(written))
    }

    /// The savepoint is gone where the transaction is: a statement that met a deadlock has rolled all of it back, and those
    /// behind it are committed one by one.
    const BEGIN: Option<&'static str> = Some(inbox::BEGIN);

    fn stands(connection: &mut MySqlConnection) -> impl Asked<()> {
        inbox::stands(connection)
    }

    fn commit(transaction: Transaction<'static, MySql>, last: Last) -> impl Asked<()> {
        inbox::commit(transaction, last)
    }

    const NOW: &'static str = NOW;

    fn literal(bytes: &[u8]) -> String {
        format!("x'{}'", hex(bytes))
    }

    fn valued(plan: &Plan<Self>, literals: [String; 3], now: &str, expires: &str) -> String {
        inbox::valued(&plan.dialect.maker, literals, now, expires)
    }

    async fn is_free(plan: &Plan<Self>, key: &Key) -> Result<bool, StoreError> {
        let free = plan.link.first(Ask::new(&plan.dialect.free).bind(crate::server::id(key))).await?;
        Ok(matches!(free, Sent::Done(_)))
    }

    async fn purge(plan: &Plan<Self>, after: Vec<u8>, room: i64) -> Result<Sent<Step>, StoreError> {
        let scan = plan.timed(Ask::new(&plan.dialect.maker.scan()).bind(after).bind(STEP));
        let rows = settled(plan.link.all(scan).await?)?;
        let next = rows.last().filter(|_| rows.len() as i64 == STEP).and_then(id);
        let mut old = Vec::new();
        for row in &rows {
            if plan.number(row, 1)? != 0 {
                old.extend(id(row));
            }
        }
        old.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        Ok(Sent::Done(Step { next, removed: remove(plan, &old).await? }))
    }
}

/// Removes what is past its time. Where somebody has one of them in hand, one by one.
async fn remove(plan: &Plan<My>, old: &[Vec<u8>]) -> Result<usize, StoreError> {
    let Some(last) = old.last() else { return Ok(0) };
    let purge = |ids: &[Vec<u8>]| {
        let mut ids = ids.to_vec();
        ids.resize(rounded(ids.len()), last.clone());
        let ask = Ask::new(&plan.dialect.maker.purge(ids.len())).bind_all(ids.into_iter().map(Value::from));
        plan.link.execute(plan.timed(ask))
    };
    if let Sent::Done(removed) = purge(old).await? {
        return Ok(usize::try_from(removed).unwrap_or_default());
    }
    let mut removed = 0;
    for id in old.chunks(1) {
        if let Sent::Done(1..) = purge(id).await? {
            removed += 1;
        }
    }
    Ok(removed)
}

/// How many rows were written.
async fn settle_packet(
    plan: &Plan<My>,
    what: Many,
    span: Option<i64>,
    mut asks: Vec<Vec<Value>>,
) -> Result<u64, StoreError> {
    let (maker, count) = (&plan.dialect.maker, rounded(asks.len()));
    let (text, width) = match what {
        Many::Renew => (maker.renew_all(count), 3),
        Many::Complete => (maker.complete_all(count), 4),
    };
    // No key has this hash.
    asks.resize(
        count,
        [Value::Bytes(Some(Vec::new()))].into_iter().chain(vec![Value::Bytes(None); width - 1]).collect(),
    );
    let ask = plan.timed(Ask::new(&text).bind(span)).bind_all(asks.into_iter().flatten());
    Ok(match plan.link.execute(ask).await? {
        Sent::Done(written) => written,
        Sent::Hindered(..) => 0,
    })
}

/// By their last value, which each of a statement's requests shares.
fn alike(asks: Vec<Vec<Value>>) -> BTreeMap<Option<i64>, Vec<Vec<Value>>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for mut ask in asks {
        let span = match ask.pop() {
            Some(Value::Int(span)) => span,
            _ => None,
        };
        groups.entry(span).or_default().push(ask);
    }
    groups
}

/// The numbers of rows that have a text of their own.
fn rounded(count: usize) -> usize {
    count.next_power_of_two()
}

fn id(row: &MySqlRow) -> Option<Vec<u8>> {
    row.bytes(0).ok().flatten().map(<[u8]>::to_vec)
}

fn is_in(ids: &HashSet<Vec<u8>>, id: &Value) -> bool {
    matches!(id, Value::Bytes(Some(id)) if ids.contains(id))
}

fn hash(id: &Value) -> Option<u128> {
    match id {
        Value::Bytes(Some(id)) => id.as_slice().try_into().ok().map(u128::from_be_bytes),
        _ => None,
    }
}

impl Cells for MySqlRow {
    fn int(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(at)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        if self.try_get_raw(at)?.is_null() { Ok(None) } else { self.try_get(at).map(Some) }
    }
}
