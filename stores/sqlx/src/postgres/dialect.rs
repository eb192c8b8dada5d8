//! The driver and the dialect of PostgreSQL.
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use idempotent_core::store::HealthFinding;
use idempotent_core::{ClaimRequest, Key, StoreError};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnection, PgRow, Postgres};
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::effect_statement::EffectStatement;
use super::error;
use super::listener::SettlementListener;
use super::sql::{NOW, PostgresStatements};
use super::{health, inbox};
use crate::inbox::EffectClaim;
use crate::row::Cells;
use crate::server::{
    BatchKind, BoundStatement, Contention, Dialect, DialectFuture, Driver, DriverFuture, FailedProof, FoundRecord,
    HealthQuery, PurgeStep, Query, Refusal, RunTexts, ServerSettings, ServerStore, Statement, StatementResult,
    StatementTarget, Value, WriteResult, hex, in_packets, settled,
};

/// Records looked at in one statement of a purge, and so the most that are removed in one transaction: a claim of a key that
/// is just being removed waits for that, some ms.
const STEP: i64 = 100;

#[derive(Debug)]
pub(crate) struct PostgresDialect {
    pub(super) own_statements: PostgresStatements,
    /// Quoted.
    pub(super) table: String,
    /// The quoted names of all tables that a worker writes.
    pub(super) tables: [String; 3],
    /// True if a pooler lends connections for one transaction.
    pub(super) is_pooled: bool,
    pub(super) tell: String,
    /// $1 the key's lock
    pub(super) free: Statement,
    /// The listener, or `None` if waiting runs poll.
    pub(super) listener: Option<SettlementListener>,
    /// Goes into each key's lock, so that two tables do not share them.
    pub(super) salt: u64,
    /// The store was opened with these.
    pub(super) settings: ServerSettings<PgPool>,
}

/// A statement for many takes an array for each of its parameters.
#[derive(Clone, Debug)]
pub(crate) enum PgValue {
    One(Value),
    Ints(Arc<[Option<i64>]>),
    Bytes(Arc<[Option<Vec<u8>>]>),
}

impl From<Value> for PgValue {
    fn from(value: Value) -> Self {
        Self::One(value)
    }
}

impl Driver for PostgresDialect {
    type Db = Postgres;
    type Value = PgValue;

    const NAME: &'static str = "PostgreSQL";
    const TLS: &'static str = "sslmode";
    const SOCKET: &'static str = "";

    fn bind(query: Query<Self>, value: PgValue) -> Query<Self> {
        match value {
            PgValue::One(Value::Int(number)) => query.bind(number),
            PgValue::One(Value::Bytes(bytes)) => query.bind(bytes),
            PgValue::Ints(numbers) => query.bind(numbers.to_vec()),
            PgValue::Bytes(all) => query.bind(all.to_vec()),
        }
    }

    async fn execute(query: Query<Self>, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        Ok(query.execute(connection).await?.rows_affected())
    }

    fn first(query: Query<Self>, connection: &mut PgConnection) -> impl DriverFuture<Option<PgRow>> {
        query.fetch_optional(connection)
    }

    fn all(query: Query<Self>, connection: &mut PgConnection) -> impl DriverFuture<Vec<PgRow>> {
        query.fetch_all(connection)
    }

    async fn send_text(text: String, connection: &mut PgConnection, rows: &mut Vec<PgRow>) -> Result<(), sqlx::Error> {
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
        error::is_read_only(error)
    }

    fn is_full(error: &dyn DatabaseError) -> bool {
        error::is_full(error)
    }

    fn ends_connection(error: &dyn DatabaseError) -> bool {
        error::ends_connection(error)
    }

    fn contention(error: &dyn DatabaseError) -> Option<Contention> {
        match error.code()?.as_ref() {
            "40001" | "40P01" => Some(Contention::Raced),
            "55P03" => Some(Contention::Locked),
            _ => None,
        }
    }

    fn lock(&self, key: &Key) -> Option<i64> {
        let [high, _] = halves(key.hash());
        Some((high ^ self.salt).cast_signed())
    }

    /// Returns true for contention. PostgreSQL ends a transaction after every error; other errors are reported as they are.
    fn ends(&self, error: &dyn DatabaseError) -> bool {
        Self::contention(error).is_some() || error.code().as_deref() == Some("25P02")
    }
}

impl Dialect for PostgresDialect {
    async fn claim(
        target: &mut StatementTarget<'_, Self>,
        claim: BoundStatement<Self>,
        _: &Key,
    ) -> Result<StatementResult<Option<FoundRecord>>, StoreError> {
        target.first(claim).await?.map(|row| row.map(|row| target.store.seen(&row)).transpose())
    }

    async fn put(target: &mut StatementTarget<'_, Self>, put: BoundStatement<Self>) -> Result<WriteResult, StoreError> {
        let row = match target.first(put).await? {
            StatementResult::Done(row) => row,
            StatementResult::Contended(how, _) => return Ok(how.into()),
        };
        let Some(row) = row else { return Ok(WriteResult::Raced) };
        Ok(match (target.store.number(&row, 0)?, target.store.number(&row, 1)?) {
            (_, 1) => WriteResult::Done,
            (1, _) => WriteResult::Raced,
            _ => WriteResult::Busy,
        })
    }

    async fn claim_all(
        store: &ServerStore<Self>,
        claims: Vec<Vec<Value>>,
    ) -> Result<StatementResult<Vec<PgRow>>, StoreError> {
        let ask = arrays(BoundStatement::new(&store.dialect.own_statements.claim_all), claims);
        store.runner.all(store.timed(ask)).await
    }

    async fn settle_all(
        store: &ServerStore<Self>,
        what: &BatchKind,
        asks: Vec<Vec<Value>>,
    ) -> Result<StatementResult<Vec<u128>>, StoreError> {
        let more = &store.dialect.own_statements;
        let text = match what {
            BatchKind::Renew => &more.renew_all,
            BatchKind::Complete => &more.complete_all,
        };
        let hash = |row: &PgRow| row.bytes(0).ok().flatten().and_then(|id| id.try_into().ok()).map(u128::from_be_bytes);
        let mut written = Vec::with_capacity(asks.len());
        for asks in in_packets(asks) {
            // Those of a packet that others were in the way of are asked for alone.
            if let StatementResult::Done(rows) =
                store.runner.all(store.timed(arrays(BoundStatement::new(text), asks))).await?
            {
                written.extend(rows.iter().filter_map(hash));
            }
        }
        Ok(StatementResult::Done(written))
    }

    fn run_texts(mark: &str) -> RunTexts {
        inbox::run_texts(mark)
    }

    fn proof(error: &dyn DatabaseError) -> Option<FailedProof> {
        inbox::proof(error)
    }

    /// Returns false: a failed statement does not end the transaction, and each later one fails too.
    fn was_rolled_back(_: &[PgRow]) -> bool {
        false
    }

    fn is_changed(rows: &[PgRow]) -> bool {
        rows.iter().any(|row| row.try_get::<i32, _>(inbox::SAME).is_ok_and(|same| same == 0))
    }

    /// Does nothing, because the claim stores the number of the transaction.
    async fn mark_claim(_: &mut PgConnection, _: &str) -> Result<(), sqlx::Error> {
        Ok(())
    }

    /// Returns false, because the completion compares the number of the transaction.
    async fn is_marked(_: &mut PgConnection, _: &str) -> Result<bool, sqlx::Error> {
        Ok(false)
    }

    type Effect = EffectStatement;

    fn claim_with(
        store: &ServerStore<Self>,
        request: &ClaimRequest,
        retain: Duration,
        effect: &EffectStatement,
    ) -> impl DialectFuture<EffectClaim> {
        store.claim_with(request, retain, effect)
    }

    const NOW: &'static str = NOW;

    /// Returns a literal that is independent of the server's handling of backslashes.
    fn literal(bytes: &[u8]) -> String {
        format!("decode('{}','hex')", hex(bytes))
    }

    fn completing(store: &ServerStore<Self>, literals: [String; 2], set: &str) -> String {
        let PostgresDialect { table, tell, .. } = &store.dialect;
        inbox::completing(table, tell, literals, set)
    }

    /// Tests the key's lock. An open transaction holds this lock until its writes are visible.
    async fn is_free(store: &ServerStore<Self>, key: &Key) -> Result<bool, StoreError> {
        let lock = BoundStatement::new(&store.dialect.free).bind(store.dialect.lock(key));
        let row = settled(store.runner.first(lock).await?)?;
        Ok(row.map(|row| store.number(&row, 0)).transpose()? == Some(1))
    }

    async fn purge(
        store: &ServerStore<Self>,
        after: Vec<u8>,
        room: i64,
    ) -> Result<StatementResult<PurgeStep>, StoreError> {
        let ask = BoundStatement::new(&store.dialect.own_statements.purge).bind(after).bind(STEP).bind(room);
        let sent = store.runner.first(store.timed(ask)).await?;
        sent.map(|row| {
            let Some(row) = row else { return Ok(PurgeStep { next: None, removed: 0 }) };
            let more = store.number(&row, 1)? == STEP;
            let last = row.bytes(0).ok().flatten().filter(|_| more).map(<[u8]>::to_vec);
            Ok(PurgeStep { next: last, removed: usize::try_from(store.number(&row, 2)?).unwrap_or_default() })
        })
    }

    const MAX_CONNECTIONS: &'static str = health::MAX_CONNECTIONS;

    fn statement(sql: &str) -> Statement {
        Statement::numbered(sql.to_owned())
    }

    fn table(store: &ServerStore<Self>) -> &str {
        &store.dialect.table
    }

    fn health_queries(store: &ServerStore<Self>) -> Vec<HealthQuery> {
        health::queries(&store.dialect.table)
    }

    fn health(store: &ServerStore<Self>) -> impl DialectFuture<Vec<HealthFinding>> {
        health::findings(store)
    }
}

/// Binds the values of the requests as one array for each parameter.
fn arrays(ask: BoundStatement<PostgresDialect>, rows: Vec<Vec<Value>>) -> BoundStatement<PostgresDialect> {
    let width = rows.first().map_or(0, Vec::len);
    let mut columns: Vec<Vec<Value>> = (0..width).map(|_| Vec::with_capacity(rows.len())).collect();
    for row in rows {
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value);
        }
    }
    columns.into_iter().fold(ask, |ask, column| ask.bind_native(array(column)))
}

fn array(column: Vec<Value>) -> PgValue {
    if let Some(Value::Int(_)) = column.first() {
        let number = |value| match value {
            Value::Int(number) => number,
            Value::Bytes(_) => None,
        };
        return PgValue::Ints(column.into_iter().map(number).collect());
    }
    let bytes = |value| match value {
        Value::Bytes(bytes) => bytes,
        Value::Int(_) => None,
    };
    PgValue::Bytes(column.into_iter().map(bytes).collect())
}

pub(super) fn halves(hash: u128) -> [u64; 2] {
    let bytes = hash.to_be_bytes();
    let half = |at: usize| bytes[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    [half(0), half(8)]
}

impl Cells for PgRow {
    fn int(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        let short = |_| self.try_get::<Option<i16>, _>(at).map(|number| number.map(i64::from));
        self.try_get(at).or_else(short)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        self.try_get(at)
    }
}
