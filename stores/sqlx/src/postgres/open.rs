//! Opening: checks, the pool, the schema.
use std::sync::Arc;

use idempotent_core::StoreError;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgPool};
use tokio::time::timeout;

use super::dialect::{PostgresDialect, halves};
use super::listener::SettlementListener;
use super::migrate::{self, MIGRATION, MIGRATIONS};
use super::session::Session;
use super::sql::{NotificationSettings, StatementBuilder};
use super::url::parse;
use super::{inbox, pooler, sql};
use crate::server::{
    ErrorContext, OrderStatements, Phase, Pool, RecentKeys, ServerSettings, ServerStore, ServerTarget, Statement,
    StatementRunner, StepStatements, connect,
};
use crate::table::Table;

pub(super) async fn open(
    builder: ServerSettings<PgPool>,
    session: Session,
) -> Result<Arc<ServerStore<PostgresDialect>>, StoreError> {
    let table = builder.table()?;
    let (pool, transactions, connections, options) = match &builder.target {
        ServerTarget::Url(url) => {
            // The texts of statements are always the same: logging them says nothing and costs.
            // PgBouncer knows no such parameter, and the tables hold no floating-point numbers.
            let options = parse(url)?.disable_statement_logging().extra_float_digits(None);
            let transactions = builder.pool_options().connect_lazy_with(options.clone());
            (Pool::own(options.clone(), builder.connections, None), transactions, builder.connections, options)
        }
        ServerTarget::Pool(pool) => {
            let options = (*pool.connect_options()).clone();
            (Pool::Shared(pool.clone()), pool.clone(), pool.options().get_max_connections(), options)
        }
    };
    let place = ErrorContext { database: shown(&options), table: table.name().into(), connections };
    // A connection outside of the pool: if this future is dropped, the connection closes, and the server rolls back.
    let mut connection = connect::<PostgresDialect>(&options, &place, builder.patience).await?;
    let is_lent = !session.is_known && pooler::detect(&mut connection, &options, &place).await?;
    let migrated = timeout(MIGRATION, migrate::migrate(&mut connection, &table, &place, builder.create, MIGRATIONS));
    migrated.await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))??;
    let schema = timeout(builder.patience, migrate::schema_of(&mut connection, &table)).await;
    let schema = schema.map_err(|_| place.silent(Phase::Connecting, builder.patience))?;
    let salt = salt(&schema.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))?, &table);
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
        steps,
        order,
        runner,
        recent_keys: RecentKeys::new(),
        clock: builder.clock,
    }))
}

pub(super) fn shown(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    format!("`{}:{}/{database}`", options.get_host(), options.get_port())
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
