//! Opening: checks, the pool, the schema.
use std::sync::Arc;

use futures_util::FutureExt;
use idempotent_core::StoreError;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySql, MySqlPool};
use tokio::time::timeout;

use super::dialect::MySqlDialect;
use super::migrate::{self, KNOWN};
use super::server_version::ServerVersion;
use super::url::parse;
use super::{inbox, sql};
use crate::lost_result::LostResult;
use crate::schema::SchemaStatus;
use crate::server::{
    Dialect as _, ErrorContext, LastRefusal, OrderStatements, Phase, Pool, Prepare, RecentKeys, ServerSettings,
    ServerStore, ServerTarget, Statement, StatementRunner, connect, run_mark,
};
use crate::table::Table;

pub(super) async fn open(
    settings: ServerSettings<MySqlPool>,
    as_on_mysql: bool,
) -> Result<Arc<ServerStore<MySqlDialect>>, StoreError> {
    settings.check()?;
    let table = settings.table()?.in_backticks();
    let options = options(&settings)?;
    let connections = match &settings.target {
        ServerTarget::Url(_) => settings.connections,
        ServerTarget::Pool(pool) => pool.options().get_max_connections(),
    };
    let place = context(&settings, &table, &options, connections);
    // Not one of the pool's: where this future is dropped, its connection goes, and with it the lock of migrations.
    let mut connection = connect::<MySqlDialect>(&options, &place, settings.patience).await?;
    let told = |error| place.error::<MySqlDialect>(Phase::Connecting, error);
    let (version, server) = ServerVersion::of(&mut connection).await.map_err(told)?;
    let server = server.check(&version)?;
    let server = ServerVersion { returning: server.returning && !as_on_mysql, ..server };
    // In the pool an error of this would be a connection that never comes.
    let session = server.session(settings.read_only);
    connection.execute(AssertSqlSafe(session.clone())).await.map_err(told)?;
    migrate::migrate(&mut connection, &table, &place, settings.create, &KNOWN).await?;
    let database = match table.schema() {
        Some(schema) => schema.to_owned(),
        None => migrate::database(&mut connection).await.map_err(told)?,
    };
    let table = table.found_in(&database);
    // Whether it was said or not, it ends here.
    let _ = timeout(settings.patience, connection.close()).await;
    let (pool, transactions, own) = match &settings.target {
        ServerTarget::Url(_) => {
            let prepare: Prepare<MySql> = Box::new(move |connection| set(connection, session.clone()).boxed());
            let refused = LastRefusal::default();
            let pool = Pool::own(options.clone(), settings.connections, Some(prepare), refused.clone());
            // What a handler writes may wait for others, as it would elsewhere.
            let session = ServerVersion::transactions(settings.read_only);
            let transactions = settings
                .pool_options(refused)
                .after_connect(move |connection, _| set(connection, session.clone()).boxed());
            (pool, transactions.connect_lazy_with(options.clone()), true)
        }
        ServerTarget::Pool(pool) => (Pool::shared(pool.clone()), pool.clone(), false),
    };
    let maker = sql::StatementBuilder::new(table.quoted(), settings.clock.is_some(), server.returning, own);
    let texts = maker.texts();
    let steps = super::steps::steps(&maker, &table);
    let order = OrderStatements::new(&maker.order_sql(&table), Statement::marks, |sql| maker.writing(sql));
    let in_transaction = inbox::statements(&maker.in_a_transaction());
    let schema = format!("'{}'", database.replace('\\', "\\\\").replace('\'', "''"));
    let runner = StatementRunner { pool, transactions, place, patience: settings.patience };
    Ok(Arc::new(ServerStore {
        dialect: MySqlDialect {
            free: inbox::free(&maker),
            maker,
            server,
            tables: [table.quoted(), table.quoted_steps(), table.quoted_beside("lines")],
            is_table: format!("table_schema={schema} AND table_name='{}'", table.name()),
            opened_with: (settings.clone(), as_on_mysql),
        },
        texts,
        in_transaction,
        run: MySqlDialect::run_texts(&run_mark()?),
        steps,
        order,
        runner,
        recent_keys: RecentKeys::new(),
        lost: LostResult::default(),
        clock: settings.clock,
    }))
}

async fn set(connection: &mut MySqlConnection, session: String) -> Result<(), sqlx::Error> {
    connection.execute(AssertSqlSafe(session)).await.map(drop)
}

/// Returns the options of the URL or of the pool.
fn options(settings: &ServerSettings<MySqlPool>) -> Result<MySqlConnectOptions, StoreError> {
    Ok(match &settings.target {
        // The texts of statements are always the same: logging them says nothing and costs.
        ServerTarget::Url(url) => parse(url)?.disable_statement_logging(),
        ServerTarget::Pool(pool) => (*pool.connect_options()).clone(),
    })
}

/// Returns the status of the schema, over a connection of its own.
pub(super) async fn status(settings: &ServerSettings<MySqlPool>) -> Result<SchemaStatus, StoreError> {
    settings.check()?;
    let table = settings.table()?.in_backticks();
    let options = options(settings)?;
    let place = context(settings, &table, &options, 1);
    let mut connection = connect::<MySqlDialect>(&options, &place, settings.patience).await?;
    let status = migrate::status(&mut connection, &table, &place, &KNOWN).await?;
    // Whether it was said or not, it ends here.
    let _ = timeout(settings.patience, connection.close()).await;
    Ok(status)
}

fn context(
    settings: &ServerSettings<MySqlPool>,
    table: &Table,
    options: &MySqlConnectOptions,
    connections: u32,
) -> ErrorContext {
    let (database, table, read_only) = (shown(options), table.name().into(), settings.read_only);
    let socket = options.get_socket().is_some();
    ErrorContext { database, table, connections, read_only, socket }
}

pub(super) fn shown(options: &MySqlConnectOptions) -> String {
    let database = options.get_database().unwrap_or_default();
    match options.get_socket() {
        Some(socket) => format!("`{}/{database}`", socket.display()),
        None => format!("`{}:{}/{database}`", options.get_host(), options.get_port()),
    }
}
