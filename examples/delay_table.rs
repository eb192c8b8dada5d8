//! Cancels orders that are not paid in time: the time limits are rows in the SQLite file of the orders.
//!
//! ```text
//! cargo run -p idempotent-examples --example delay_table
//! ```
//!
//! The application `order_timeout` in `apps/order_timeout` survives `kill -9`, and can keep the time limits in RabbitMQ.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::time::Duration;

use idempotent::delay::{DelayTable, ScheduledTask};
use idempotent::mq::{Consumer, Message, Messages};
use idempotent::{Executor, Rejection, SqliteStore, idempotent};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

/// The time to pay; 30 minutes in a shop.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error(transparent)]
    Orders(#[from] sqlx::Error),
}

/// Cancels an order if it is still unpaid: a payment may arrive while the message is on its way.
#[idempotent(scene = mq, scope = "order_limit", key = order)]
async fn cancel(order: &str, orders: &SqlitePool) -> Result<(), OrderError> {
    let cancel = sqlx::query("UPDATE orders SET status = 'cancelled' WHERE id = ? AND status = 'unpaid'");
    let cancelled = cancel.bind(order.to_owned()).execute(orders).await?.rows_affected();
    println!("{order}: the time is over, {cancelled} order cancelled");
    Ok(())
}

/// Writes an order and its time limit in one transaction.
async fn place(orders: &SqlitePool, limits: &DelayTable<sqlx::Sqlite>, order: &str) -> anyhow::Result<()> {
    let mut tx = orders.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("INSERT INTO orders VALUES (?, 'unpaid')").bind(order.to_owned()).execute(&mut *tx).await?;
    limits.put_in(&mut tx, &ScheduledTask::after(order, LIMIT, order)).await?;
    tx.commit().await?;
    limits.wake();
    println!("{order}: placed");
    Ok(())
}

/// Marks an order as paid and deletes its time limit, in one transaction. Returns whether the order was unpaid.
async fn pay(orders: &SqlitePool, limits: &DelayTable<sqlx::Sqlite>, order: &str) -> anyhow::Result<bool> {
    let mut tx = orders.begin_with("BEGIN IMMEDIATE").await?;
    let pay = sqlx::query("UPDATE orders SET status = 'paid' WHERE id = ? AND status = 'unpaid'");
    let is_paid = pay.bind(order.to_owned()).execute(&mut *tx).await?.rows_affected() == 1;
    limits.cancel_in(&mut tx, order).await?;
    tx.commit().await?;
    Ok(is_paid)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let orders = SqlitePool::connect_with(options).await?;
    sqlx::query("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT NOT NULL)").execute(&orders).await?;
    let limits = DelayTable::builder(orders.clone()).table("order_limits").create(true).open().await?;

    for order in ["order-1", "order-2"] {
        place(&orders, &limits, order).await?;
    }
    assert!(pay(&orders, &limits, "order-1").await?);
    println!("order-1: paid");

    let executor = Executor::new(SqliteStore::open(file.display().to_string()).await?);
    let of_handler = orders.clone();
    let handler = Messages::raw().annotated(move |message: Message<()>| {
        let orders = of_handler.clone();
        async move { cancel(&String::from_utf8_lossy(&message.delivery.body), &orders).await }
    });
    let consumer = Consumer::builder(limits.source(), "order_limits", &executor).build(handler)?;
    let is_empty = async {
        while limits.counts().await.is_ok_and(|counts| counts.ready + counts.waiting + counts.in_flight > 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    consumer.run(is_empty).await?;

    assert!(!pay(&orders, &limits, "order-2").await?, "a late payment is refused");
    let status: Vec<String> = sqlx::query_scalar("SELECT status FROM orders ORDER BY id").fetch_all(&orders).await?;
    assert_eq!(status, ["paid", "cancelled"]);
    Ok(())
}
