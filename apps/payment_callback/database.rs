//! Orders and payments, in PostgreSQL or MariaDB.
use sqlx::{Database, MySql, Pool, Postgres, Transaction};

type Answer<T> = Result<T, sqlx::Error>;

/// A database that stores orders.
pub(crate) trait OrderDatabase: Database {
    /// Creates missing tables.
    fn create_tables(pool: &Pool<Self>) -> impl Future<Output = Answer<()>> + Send;

    /// Inserts an unpaid order.
    fn place(pool: &Pool<Self>, order: &str) -> impl Future<Output = Answer<()>> + Send;

    /// Pays an order and records the payment. Returns whether there was such an unpaid order.
    fn pay(tx: &mut Transaction<'_, Self>, order: &str, cents: i64) -> impl Future<Output = Answer<bool>> + Send;

    /// Returns the status of an order and the number of its payments.
    fn status(pool: &Pool<Self>, order: &str) -> impl Future<Output = Answer<(String, i64)>> + Send;
}

// A repeated payment adds a row, so that it shows.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS orders (id VARCHAR(64) PRIMARY KEY, status VARCHAR(16) NOT NULL)",
    "CREATE TABLE IF NOT EXISTS payments (order_id VARCHAR(64) NOT NULL, cents BIGINT NOT NULL)",
];

/// Implements the trait for a database with these placeholders.
macro_rules! order_database {
    ($database:ty, $first:literal, $second:literal) => {
        impl OrderDatabase for $database {
            async fn create_tables(pool: &Pool<Self>) -> Answer<()> {
                for table in TABLES {
                    sqlx::raw_sql(table).execute(pool).await?;
                }
                Ok(())
            }

            async fn place(pool: &Pool<Self>, order: &str) -> Answer<()> {
                let insert = concat!("INSERT INTO orders VALUES (", $first, ", 'unpaid')");
                sqlx::query(insert).bind(order.to_owned()).execute(pool).await.map(drop)
            }

            async fn pay(tx: &mut Transaction<'_, Self>, order: &str, cents: i64) -> Answer<bool> {
                let update = concat!("UPDATE orders SET status = 'paid' WHERE status = 'unpaid' AND id = ", $first);
                let paid = sqlx::query(update).bind(order.to_owned()).execute(&mut **tx).await?.rows_affected();
                if paid == 0 {
                    return Ok(false);
                }
                let insert = concat!("INSERT INTO payments VALUES (", $first, ", ", $second, ")");
                sqlx::query(insert).bind(order.to_owned()).bind(cents).execute(&mut **tx).await?;
                Ok(true)
            }

            async fn status(pool: &Pool<Self>, order: &str) -> Answer<(String, i64)> {
                let status = sqlx::query_scalar(concat!("SELECT status FROM orders WHERE id = ", $first));
                let status = status.bind(order.to_owned()).fetch_one(pool).await?;
                let payments = sqlx::query_scalar(concat!("SELECT COUNT(*) FROM payments WHERE order_id = ", $first));
                Ok((status, payments.bind(order.to_owned()).fetch_one(pool).await?))
            }
        }
    };
}

order_database!(Postgres, "$1", "$2");
order_database!(MySql, "?", "?");
