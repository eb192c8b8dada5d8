//! Opening: checks, the pool, the schema.
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use idempotent_core::StoreError;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySql, MySqlPool};
use tokio::time::timeout;

use super::dialect::MySqlDialect;
use super::migrate::{self, MIGRATIONS};
use super::server_version::{ISOLATION, ServerVersion};
use super::url::parse;
use super::{inbox, sql};
use crate::server::{
    ErrorContext, OrderStatements, Phase, Pool, Prepare, RecentKeys, ServerSettings, ServerStore, ServerTarget,
    Statement, StatementRunner, connect,
};

/// One that waits for another's migration.
pub(super) const MIGRATION: Duration = Duration::from_secs(60);

pub(super) async fn open(
    settings: ServerSettings<MySqlPool>,
    as_on_mysql: bool,
) -> Result<Arc<ServerStore<MySqlDialect>>, StoreError> {
    let table = settings.table()?.in_backticks();
    let options = match &settings.target {
        // The texts of statements are always the same: logging them says nothing and costs.
        ServerTarget::Url(url) => parse(url)?.disable_statement_logging(),
        ServerTarget::Pool(pool) => (*pool.connect_options()).clone(),
    };
    let connections = match &settings.target {
        ServerTarget::Url(_) => settings.connections,
        ServerTarget::Pool(pool) => pool.options().get_max_connections(),
    };
    let place = ErrorContext { database: shown(&options), table: table.name().into(), connections };
    // Not one of the pool's: where this future is dropped, its connection goes, and with it the lock of migrations.
    let mut connection = connect::<MySqlDialect>(&options, &place, settings.patience).await?;
    let told = |error| place.error::<MySqlDialect>(Phase::Connecting, error);
    let (version, server) = ServerVersion::of(&mut connection).await.map_err(told)?;
    let server = server.check(&version)?;
    let server = ServerVersion { returning: server.returning && !as_on_mysql, ..server };
    // In the pool an error of this would be a connection that never comes.
    connection.execute(AssertSqlSafe(server.session())).await.map_err(told)?;
    let migrated = timeout(MIGRATION, migrate::migrate(&mut connection, &table, &place, settings.create, MIGRATIONS));
    migrated.await.map_err(|_| place.silent(Phase::Connecting, MIGRATION))??;
    // Whether it was said or not, it ends here.
    let _ = timeout(settings.patience, connection.close()).await;
    let (pool, transactions, own) = match &settings.target {
        ServerTarget::Url(_) => {
            let session = server.session();
            let prepare: Prepare<MySql> = Box::new(move |connection| set(connection, session.clone()).boxed());
            let pool = Pool::own(options.clone(), settings.connections, Some(prepare));
            // What a handler writes may wait for others, as it would elsewhere.
            let transactions =
                settings.pool_options().after_connect(|connection, _| set(connection, ISOLATION.to_owned()).boxed());
            (pool, transactions.connect_lazy_with(options.clone()), true)
        }
        ServerTarget::Pool(pool) => (Pool::Shared(pool.clone()), pool.clone(), false),
    };
    let maker = sql::StatementBuilder::new(table.quoted(), settings.clock.is_some(), server.returning, own);
    let texts = maker.texts();
    let steps = super::steps::steps(&maker, &table);
    let order = OrderStatements::new(&maker.order_sql(&table), Statement::marks, |sql| maker.writing(sql));
    let in_transaction = inbox::statements(&maker.in_a_transaction());
    let runner = StatementRunner { pool, transactions, place, patience: settings.patience };
    Ok(Arc::new(ServerStore {
        dialect: MySqlDialect {
            free: inbox::free(&maker),
            maker,
            server,
            opened_with: (settings.clone(), as_on_mysql),
        },
        texts,
        in_transaction,
        steps,
        order,
        runner,
        recent_keys: RecentKeys::new(),
        clock: settings.clock,
    }))
}

async fn set(connection: &mut MySqlConnection, session: String) -> Result<(), sqlx::Error> {
    connection.execute(AssertSqlSafe(session)).await.map(drop)
}

pub(super) fn shown(options: &MySqlConnectOptions) -> String {
    format!("`{}:{}/{}`", options.get_host(), options.get_port(), options.get_database().unwrap_or_default())
}
