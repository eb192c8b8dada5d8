//! The tables of orders and shipments, and the outbox.
use std::time::Duration;

use idempotent::Outbox;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Postgres, Transaction};

/// The number of connections of one process, besides those of the store.
const CONNECTIONS: u32 = 4;
/// The longest wait for a connection. A process that finds no database at its start ends, and is started again.
const PATIENCE: Duration = Duration::from_secs(5);

// A repeated shipment adds a row, so that it shows.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS orders (number TEXT PRIMARY KEY, article TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS shipments (order_number TEXT NOT NULL, shipped_at TIMESTAMPTZ NOT NULL DEFAULT now())",
];

/// Creates missing tables. Needs a role that may create tables.
pub(crate) async fn migrate(url: &str) -> anyhow::Result<()> {
    let pool = connect(url).await?;
    for table in TABLES {
        sqlx::raw_sql(table).execute(&pool).await?;
    }
    Outbox::builder(pool).create(true).open().await?;
    Ok(())
}

/// Connects to the database, whose tables exist.
pub(crate) async fn connect(url: &str) -> anyhow::Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE).connect(url).await?)
}

/// Inserts an order. Returns false if the order exists.
pub(crate) async fn place(tx: &mut Transaction<'_, Postgres>, number: &str, article: &str) -> sqlx::Result<bool> {
    let insert = "INSERT INTO orders VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let done = sqlx::query(insert).bind(number.to_owned()).bind(article.to_owned()).execute(&mut **tx).await?;
    Ok(done.rows_affected() == 1)
}

/// Inserts a shipment.
pub(crate) async fn ship(tx: &mut Transaction<'_, Postgres>, number: &str) -> sqlx::Result<()> {
    let insert = "INSERT INTO shipments (order_number) VALUES ($1)";
    sqlx::query(insert).bind(number.to_owned()).execute(&mut **tx).await.map(drop)
}
