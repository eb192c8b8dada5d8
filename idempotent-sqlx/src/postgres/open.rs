//! Opening: checks, the pool, the schema.
use std::sync::Arc;

use idempotent_core::StoreError;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgPool};
use tokio::time::timeout;

use super::dialect::{Pg, halves};
use super::ear::Ears;
use super::migrate::{self, MIGRATION, MIGRATIONS};
use super::session::Session;
use super::sql::{Maker, Words};
use super::url::parse;
use super::{inbox, pooler, sql};
use crate::server::{
    Lately, Link, OrderStatements, Place, Plan, Pool, Settings, StepStatements, Target, Text, When, connect,
};
use crate::table::Table;

pub(super) async fn open(builder: Settings<PgPool>, session: Session) -> Result<Arc<Plan<Pg>>, StoreError> {
    let table = builder.table()?;
    let (pool, transactions, connections, options) = match &builder.target {
        Target::Url(url) => {
            // The texts of statements are always the same: logging them says nothing and costs.
            // PgBouncer knows no such parameter, and the tables hold no floating-point numbers.
            let options = parse(url)?.disable_statement_logging().extra_float_digits(None);
            let transactions = builder.pool_options().connect_lazy_with(options.clone());
            (Pool::own(options.clone(), builder.connections, None), transactions, builder.connections, options)
        }
        Target::Pool(pool) => {
            let options = (*pool.connect_options()).clone();
            (Pool::Theirs(pool.clone()), pool.clone(), pool.options().get_max_connections(), options)
        }
    };
    let place = Place { database: shown(&options), table: table.name().into(), connections };
    // Not one of the pool's: where this future is dropped, its connection goes, and with it what was begun.
    let mut connection = connect::<Pg>(&options, &place, builder.patience).await?;
    let is_lent = !session.is_known && pooler::detect(&mut connection, &options, &place).await?;
    let migrated = timeout(MIGRATION, migrate::migrate(&mut connection, &table, &place, builder.create, MIGRATIONS));
    migrated.await.map_err(|_| place.silent(When::Connecting, MIGRATION))??;
    let schema = timeout(builder.patience, migrate::schema_of(&mut connection, &table)).await;
    let schema = schema.map_err(|_| place.silent(When::Connecting, builder.patience))?;
    let salt = salt(&schema.map_err(|error| place.error::<Pg>(When::Connecting, error))?, &table);
    // Whether it was said or not, it ends here.
    let _ = timeout(builder.patience, connection.close()).await;
    let words = words(salt);
    let maker = Maker::new(table.quoted(), &words, builder.clock.is_some());
    let (texts, more) = sql::texts(&maker);
    let steps = StepStatements::numbered(sql::steps_sql(&table, builder.clock.is_some()));
    let order = OrderStatements::new(
        &sql::order_sql(&table, builder.clock.is_some()),
        |sql| Text::numbered(sql.into()),
        str::to_owned,
    );
    let link = Link { pool, transactions, place, patience: builder.patience };
    let ears = (session.listening && !is_lent).then(|| Ears::new(options, words, builder.patience));
    let inside = inbox::inside(&maker, &texts);
    let dialect =
        Pg { more, table: maker.table, tell: maker.tell, free: inbox::free(), salt, ears, settings: builder.clone() };
    Ok(Arc::new(Plan { dialect, texts, inside, steps, order, link, lately: Lately::new(), clock: builder.clock }))
}

pub(super) fn shown(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    format!("`{}:{}/{database}`", options.get_host(), options.get_port())
}

/// By the schema's name, also where the store was given none: it is the same table, and what claims exclude each other by
/// must be the same.
fn salt(schema: &str, table: &Table) -> u64 {
    let digest: [u8; 32] = Sha256::digest(format!("\"{schema}\".\"{}\"", table.name())).into();
    let [high, _] = halves(u128::from_be_bytes(std::array::from_fn(|at| digest[at])));
    high
}

/// Of this table only; where others share them, somebody wakes for nothing.
fn words(salt: u64) -> Words {
    let [.., a, b, c, d] = salt.to_be_bytes();
    Words { channel: format!("idempotent_{salt:016x}"), space: i32::from_be_bytes([a, b, c, d]) }
}
