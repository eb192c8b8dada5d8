//! Opening: checks, the pool, the schema.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{StoreError, StoreErrorKind};
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgPool, Row};
use tokio::time::timeout;

use super::dialect::{PostgresDialect, halves};
use super::listener::SettlementListener;
use super::migrate::{self, KNOWN};
use super::partitions::PartitionCount;
use super::sql::{NotificationSettings, StatementBuilder};
use super::url::{parse, shown};
use super::{inbox, pooler, sql};
use crate::lost_result::LostResult;
use crate::schema::SchemaStatus;
use crate::server::{
    Dialect as _, ErrorContext, LastRefusal, OrderStatements, Phase, Pool, RecentKeys, ServerSettings, ServerStore,
    ServerTarget, Statement, StatementRunner, StepStatements, connect, run_mark,
};
use crate::table::Table;

/// The use of a server session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// True if waiting runs are notified.
    pub(super) listening: bool,
    /// True if another store has already looked for a pooler.
    pub(super) is_known: bool,
}

impl Session {
    pub(super) const NEW: Self = Self { listening: true, is_known: false };
}

/// The setting that makes the transactions of a session read-only.
const READ_ONLY: &str = "default_transaction_read_only";

pub(super) async fn open(
    builder: ServerSettings<PgPool>,
    session: Session,
) -> Result<Arc<ServerStore<PostgresDialect>>, StoreError> {
    builder.check()?;
    let (table, partitions) = (builder.table()?, partitions(&builder)?);
    let (pool, transactions, connections, options) = match &builder.target {
        ServerTarget::Url(url) => {
            let options = url_options(url, builder.read_only)?;
            let refused = LastRefusal::default();
            let transactions = builder.pool_options(refused.clone()).connect_lazy_with(options.clone());
            (Pool::own(options.clone(), builder.connections, None, refused), transactions, builder.connections, options)
        }
        ServerTarget::Pool(pool) => {
            let options = (*pool.connect_options()).clone();
            (Pool::shared(pool.clone()), pool.clone(), pool.options().get_max_connections(), options)
        }
    };
    let place = context(&builder, &table, &options, connections);
    // A connection outside of the pool: if this future is dropped, the connection closes, and the server rolls back.
    let mut connection = first_connection(&options, &place, builder.patience).await?;
    if builder.read_only {
        check_session(&mut connection, &place).await?;
    }
    let is_lent = !session.is_known && pooler::detect(&mut connection, &options, &place).await?;
    migrate::migrate(&mut connection, &table, &place, builder.create, &KNOWN, partitions).await?;
    let schema = timeout(builder.patience, migrate::schema_of(&mut connection, &table)).await;
    let schema = schema.map_err(|_| place.silent(Phase::Connecting, builder.patience))?;
    let schema = schema.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))?;
    let salt = salt(&schema, &table);
    let table = table.found_in(&schema);
    // Whether it was said or not, it ends here.
    let _ = timeout(builder.patience, connection.close()).await;
    let notifications = notifications(salt);
    let maker = StatementBuilder::new(table.quoted(), &notifications, builder.clock.is_some());
    let (texts, own_statements) = sql::texts(&maker);
    let steps = StepStatements::numbered(sql::steps_sql(&table, builder.clock.is_some()));
    let order = OrderStatements::new(
        &sql::order_sql(&table, builder.clock.is_some()),
        |sql| Statement::numbered(sql.into()),
        str::to_owned,
    );
    let runner = StatementRunner { pool, transactions, place, patience: builder.patience };
    let listener =
        (session.listening && !is_lent).then(|| SettlementListener::new(options, notifications, builder.patience));
    let in_transaction = inbox::statements(&maker, &texts);
    let dialect = PostgresDialect {
        own_statements,
        table: maker.table,
        tables: [table.quoted(), table.quoted_steps(), table.quoted_beside("lines")],
        is_pooled: is_lent,
        tell: maker.tell,
        free: inbox::free(),
        salt,
        listener,
        settings: builder.clone(),
    };
    Ok(Arc::new(ServerStore {
        dialect,
        texts,
        in_transaction,
        run: PostgresDialect::run_texts(&run_mark()?),
        steps,
        order,
        runner,
        recent_keys: RecentKeys::new(),
        lost: LostResult::default(),
        clock: builder.clock,
    }))
}

/// Returns the number of partitions that is set.
///
/// # Errors
/// The number is invalid.
pub(super) fn partitions(settings: &ServerSettings<PgPool>) -> Result<Option<PartitionCount>, StoreError> {
    settings.partitions.map(PartitionCount::new).transpose()
}

/// Returns the options of the store's own connections.
fn url_options(url: &str, read_only: bool) -> Result<PgConnectOptions, StoreError> {
    // The texts of statements are always the same: logging them says nothing and costs.
    // PgBouncer knows no such parameter, and the tables hold no floating-point numbers.
    let options = parse(url)?.disable_statement_logging().extra_float_digits(None);
    // Not by a statement, which would also change the sessions of other clients of a transaction pooler.
    Ok(if read_only { options.options([(READ_ONLY, "on")]) } else { options })
}

/// Connects. A pooler that refuses the setting of a session that only reads is named with its remedy.
async fn first_connection(
    options: &PgConnectOptions,
    place: &ErrorContext,
    patience: Duration,
) -> Result<PgConnection, StoreError> {
    match connect::<PostgresDialect>(options, place, patience).await {
        Err(error) if place.read_only && error.to_string().contains("unsupported startup parameter") => {
            Err(not_read_only(place, "refuses").with_source(error))
        }
        connection => connection,
    }
}

fn not_read_only(place: &ErrorContext, does: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Schema).because(format!(
        "the session of {} is not read-only, as `read_only(true)` demands: a pooler {does} the startup parameter \
         `options`; connect to the server directly",
        place.database
    ))
}

/// Returns an error if a pooler has ignored the setting of the session.
async fn check_session(connection: &mut PgConnection, place: &ErrorContext) -> Result<(), StoreError> {
    let told = |error| place.error::<PostgresDialect>(Phase::Connecting, error);
    let setting =
        sqlx::raw_sql(AssertSqlSafe(format!("SHOW {READ_ONLY}"))).fetch_one(connection).await.map_err(told)?;
    match setting.try_get::<&str, _>(0).map_err(told)? {
        "on" => Ok(()),
        _ => Err(not_read_only(place, "ignores")),
    }
}

/// Returns the status of the schema, over a connection of its own.
pub(super) async fn status(settings: &ServerSettings<PgPool>) -> Result<SchemaStatus, StoreError> {
    settings.check()?;
    let (table, partitions) = (settings.table()?, partitions(settings)?);
    let options = match &settings.target {
        ServerTarget::Url(url) => url_options(url, settings.read_only)?,
        ServerTarget::Pool(pool) => (*pool.connect_options()).clone(),
    };
    let place = context(settings, &table, &options, 1);
    let mut connection = first_connection(&options, &place, settings.patience).await?;
    let status = migrate::status(&mut connection, &table, &place, &KNOWN, partitions).await?;
    // Whether it was said or not, it ends here.
    let _ = timeout(settings.patience, connection.close()).await;
    Ok(status)
}

fn context(
    settings: &ServerSettings<PgPool>,
    table: &Table,
    options: &PgConnectOptions,
    connections: u32,
) -> ErrorContext {
    let (database, table, read_only) = (shown(options), table.name().into(), settings.read_only);
    let socket = options.get_socket().is_some();
    ErrorContext { database, table, connections, read_only, socket }
}

/// Derives the salt of the advisory locks from the name of the schema, even if the schema was not set: both settings
/// name the same table, and their claims must exclude each other.
fn salt(schema: &str, table: &Table) -> u64 {
    let digest: [u8; 32] = Sha256::digest(format!("\"{schema}\".\"{}\"", table.name())).into();
    let [high, _] = halves(u128::from_be_bytes(std::array::from_fn(|at| digest[at])));
    high
}

/// Returns the channel and lock space of this table. A collision with another table only causes superfluous wake-ups.
fn notifications(salt: u64) -> NotificationSettings {
    let [.., a, b, c, d] = salt.to_be_bytes();
    NotificationSettings { channel: format!("idempotent_{salt:016x}"), space: i32::from_be_bytes([a, b, c, d]) }
}
