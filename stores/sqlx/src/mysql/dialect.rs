//! The driver and the dialect of MariaDB and MySQL.
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use idempotent_core::store::HealthFinding;
use idempotent_core::{ClaimRequest, Key, StoreError};
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySql, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, MySqlPool, Row, ValueRef};

use super::server_version::ServerVersion;
use super::sql::{NOW, StatementBuilder};
use super::{error, health, inbox};
use crate::inbox::EffectClaim;
use crate::row::Cells;
use crate::server::{
    BatchKind, BoundStatement, Contention, Dialect, DialectFuture, Driver, DriverFuture, FailedProof, FoundRecord,
    HealthQuery, PurgeStep, Query, Refusal, RunTexts, ServerSettings, ServerStore, Statement, StatementResult,
    StatementTarget, Value, WriteResult, hex, in_packets, settled,
};

/// Records looked at in one step of a purge, and so the most that are removed in one transaction.
const STEP: i64 = 500;
/// The size of a statement without its value, in bytes.
const AROUND: usize = 4 << 10;

#[derive(Debug)]
pub(crate) struct MySqlDialect {
    pub(super) maker: StatementBuilder,
    pub(super) server: ServerVersion,
    /// $1 the key's hash: fails if another transaction holds the key.
    pub(super) free: Statement,
    /// The quoted names of all tables that a worker writes.
    pub(super) tables: [String; 3],
    /// The condition on `information_schema.tables` that selects the record table.
    pub(super) is_table: String,
    /// The settings of the builder, and whether it selected the statements for MySQL.
    pub(super) opened_with: (ServerSettings<MySqlPool>, bool),
}

impl Driver for MySqlDialect {
    type Db = MySql;
    type Value = Value;

    const NAME: &'static str = "MariaDB or MySQL";
    const TLS: &'static str = "ssl-mode";
    const SOCKET: &'static str = super::error::SOCKET;

    fn bind(query: Query<Self>, value: Value) -> Query<Self> {
        match value {
            Value::Int(number) => query.bind(number),
            Value::Bytes(bytes) => query.bind(bytes),
        }
    }

    async fn execute(query: Query<Self>, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
        Ok(query.execute(connection).await?.rows_affected())
    }

    fn first(query: Query<Self>, connection: &mut MySqlConnection) -> impl DriverFuture<Option<MySqlRow>> {
        query.fetch_optional(connection)
    }

    fn all(query: Query<Self>, connection: &mut MySqlConnection) -> impl DriverFuture<Vec<MySqlRow>> {
        query.fetch_all(connection)
    }

    async fn send_text(
        text: String,
        connection: &mut MySqlConnection,
        rows: &mut Vec<MySqlRow>,
    ) -> Result<(), sqlx::Error> {
        let mut answers = sqlx::raw_sql(AssertSqlSafe(text)).fetch(connection);
        while let Some(row) = answers.try_next().await? {
            rows.push(row);
        }
        Ok(())
    }

    fn refusal(error: &dyn DatabaseError) -> Refusal {
        error::refusal(error)
    }

    fn is_read_only(error: &dyn DatabaseError) -> bool {
        super::error::is_read_only(error)
    }

    fn is_full(error: &dyn DatabaseError) -> bool {
        error::is_full(error)
    }

    fn ends_connection(error: &dyn DatabaseError) -> bool {
        error::ends_connection(error)
    }

    fn configuration(cause: &str) -> String {
        error::configuration(cause)
    }

    fn contention(error: &dyn DatabaseError) -> Option<Contention> {
        error::contention(error)
    }

    fn most(&self) -> usize {
        self.server.packet.saturating_sub(AROUND)
    }

    fn ends(&self, error: &dyn DatabaseError) -> bool {
        match Self::contention(error) {
            Some(Contention::Raced) => true,
            Some(Contention::Locked) => self.server.unforgiving,
            None => false,
        }
    }
}

impl Dialect for MySqlDialect {
    async fn claim(
        target: &mut StatementTarget<'_, Self>,
        claim: BoundStatement<Self>,
        key: &Key,
    ) -> Result<StatementResult<Option<FoundRecord>>, StoreError> {
        if target.store.dialect.server.returning {
            return match target.first(claim).await?.map(|row| row.map(|row| target.store.seen(&row)).transpose())? {
                StatementResult::Done(None) => target.look(key).await,
                told => Ok(told),
            };
        }
        // Where it would wait for another's transaction, the look in one says so at once.
        if target.is_open() {
            match target.look(key).await? {
                StatementResult::Done(None) => {}
                told => return Ok(told),
            }
        }
        let inserted = match target.execute(claim).await? {
            StatementResult::Done(rows) => rows > 0,
            StatementResult::Contended(how, error) => return Ok(StatementResult::Contended(how, error)),
        };
        target.look(key).await?.map(|seen| Ok(seen.map(|seen| FoundRecord { granted: inserted, ..seen })))
    }

    async fn put(target: &mut StatementTarget<'_, Self>, put: BoundStatement<Self>) -> Result<WriteResult, StoreError> {
        Ok(match target.execute(put).await? {
            StatementResult::Done(1..) => WriteResult::Done,
            StatementResult::Done(0) => WriteResult::Raced,
            StatementResult::Contended(how, _) => how.into(),
        })
    }

    async fn claim_all(
        store: &ServerStore<Self>,
        mut claims: Vec<Vec<Value>>,
    ) -> Result<StatementResult<Vec<MySqlRow>>, StoreError> {
        let ids: Vec<Value> = claims.iter().filter_map(|claim| claim.first().cloned()).collect();
        // A key that comes twice is ignored the second time: so few numbers of rows need a text of their own.
        let count = rounded(claims.len());
        if let Some(last) = claims.last().cloned() {
            claims.resize(count, last);
        }
        let Self { maker, server, .. } = &store.dialect;
        let insert = store.timed(BoundStatement::new(&maker.claim_all(count)).bind_all(claims.into_iter().flatten()));
        let sent = match server.returning {
            true => store.runner.all(insert).await?,
            false => store.runner.execute(insert).await?.map(|_| Ok(Vec::new()))?,
        };
        let StatementResult::Done(mut rows) = sent else { return Ok(sent) };
        let there: HashSet<Vec<u8>> = rows.iter().filter_map(id).collect();
        let mut left: Vec<Value> = ids.into_iter().filter(|id| !is_in(&there, id)).collect();
        if let Some(last) = left.last().cloned() {
            left.resize(rounded(left.len()), last);
            let look = store.timed(BoundStatement::new(&maker.look_all(left.len())).bind_all(left));
            rows.extend(settled(store.runner.all(look).await?)?);
        }
        Ok(StatementResult::Done(rows))
    }

    async fn settle_all(
        store: &ServerStore<Self>,
        what: &BatchKind,
        asks: Vec<Vec<Value>>,
    ) -> Result<StatementResult<Vec<u128>>, StoreError> {
        let mut written = Vec::with_capacity(asks.len());
        for (span, asks) in alike(asks) {
            for asks in in_packets(asks) {
                let hashes: Vec<u128> = asks.iter().filter_map(|ask| hash(ask.first()?)).collect();
                if settle_packet(store, *what, span, asks).await? == hashes.len() as u64 {
                    written.extend(hashes);
                }
            }
        }
        Ok(StatementResult::Done(written))
    }

    fn run_texts(mark: &str) -> RunTexts {
        inbox::run_texts(mark)
    }

    fn proof(error: &dyn DatabaseError) -> Option<FailedProof> {
        error::proof(error)
    }

    /// Returns true if the last statement of the handler met a deadlock, for which the server rolls back the transaction.
    fn was_rolled_back(rows: &[MySqlRow]) -> bool {
        rows.iter().any(|error| error.try_get::<u32, _>("Code").is_ok_and(error::rolls_back))
    }

    fn is_changed(rows: &[MySqlRow]) -> bool {
        rows.iter().any(|row| row.try_get::<i64, _>(inbox::SAME).is_ok_and(|same| same == 0))
    }

    fn mark_claim(connection: &mut MySqlConnection, owner: &str) -> impl DriverFuture<()> {
        inbox::mark_claim(connection, owner)
    }

    fn is_marked(connection: &mut MySqlConnection, owner: &str) -> impl DriverFuture<bool> {
        inbox::is_marked(connection, owner)
    }

    type Effect = Infallible;

    async fn claim_with(
        _: &ServerStore<Self>,
        _: &ClaimRequest,
        _: Duration,
        effect: &Infallible,
    ) -> Result<EffectClaim, StoreError> {
        match *effect {}
    }

    const NOW: &'static str = NOW;

    fn literal(bytes: &[u8]) -> String {
        format!("x'{}'", hex(bytes))
    }

    fn completing(store: &ServerStore<Self>, literals: [String; 2], set: &str) -> String {
        inbox::completing(&store.dialect.maker, literals, set)
    }

    async fn is_free(store: &ServerStore<Self>, key: &Key) -> Result<bool, StoreError> {
        let free = store.runner.first(BoundStatement::new(&store.dialect.free).bind(crate::server::id(key))).await?;
        Ok(matches!(free, StatementResult::Done(_)))
    }

    async fn purge(
        store: &ServerStore<Self>,
        after: Vec<u8>,
        room: i64,
    ) -> Result<StatementResult<PurgeStep>, StoreError> {
        let scan = store.timed(BoundStatement::new(&store.dialect.maker.scan()).bind(after).bind(STEP));
        let rows = settled(store.runner.all(scan).await?)?;
        let next = rows.last().filter(|_| rows.len() as i64 == STEP).and_then(id);
        let mut old = Vec::new();
        for row in &rows {
            if store.number(row, 1)? != 0 {
                old.extend(id(row));
            }
        }
        old.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        Ok(StatementResult::Done(PurgeStep { next, removed: remove(store, &old).await? }))
    }

    const MAX_CONNECTIONS: &'static str = health::MAX_CONNECTIONS;

    fn statement(sql: &str) -> Statement {
        Statement::marks(sql)
    }

    fn table(store: &ServerStore<Self>) -> &str {
        &store.dialect.maker.table
    }

    fn health_queries(store: &ServerStore<Self>) -> Vec<HealthQuery> {
        health::queries(store)
    }

    fn health(store: &ServerStore<Self>) -> impl DialectFuture<Vec<HealthFinding>> {
        health::findings(store)
    }
}

/// Removes expired records. If another transaction holds one of them, removes them one by one.
async fn remove(store: &ServerStore<MySqlDialect>, old: &[Vec<u8>]) -> Result<usize, StoreError> {
    let Some(last) = old.last() else { return Ok(0) };
    let purge = |ids: &[Vec<u8>]| {
        let mut ids = ids.to_vec();
        ids.resize(rounded(ids.len()), last.clone());
        let ask = BoundStatement::new(&store.dialect.maker.purge(ids.len())).bind_all(ids.into_iter().map(Value::from));
        store.runner.execute(store.timed(ask))
    };
    if let StatementResult::Done(removed) = purge(old).await? {
        return Ok(usize::try_from(removed).unwrap_or_default());
    }
    let mut removed = 0;
    for id in old.chunks(1) {
        if let StatementResult::Done(1..) = purge(id).await? {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Sends a packet of renewals or completions. Returns the number of written rows.
async fn settle_packet(
    store: &ServerStore<MySqlDialect>,
    what: BatchKind,
    span: Option<i64>,
    mut asks: Vec<Vec<Value>>,
) -> Result<u64, StoreError> {
    let (maker, count) = (&store.dialect.maker, rounded(asks.len()));
    let (text, width) = match what {
        BatchKind::Renew => (maker.renew_all(count), 3),
        BatchKind::Complete => (maker.complete_all(count), 4),
    };
    // No key has this hash.
    asks.resize(
        count,
        [Value::Bytes(Some(Vec::new()))].into_iter().chain(vec![Value::Bytes(None); width - 1]).collect(),
    );
    let ask = store.timed(BoundStatement::new(&text).bind(span)).bind_all(asks.into_iter().flatten());
    Ok(match store.runner.execute(ask).await? {
        StatementResult::Done(written) => written,
        StatementResult::Contended(..) => 0,
    })
}

/// Groups requests by their last value, which all requests of a statement share.
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

/// Rounds up to a number of rows for which there is a prepared statement.
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
