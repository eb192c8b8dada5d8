//! Consumes a queue of PGMQ: effect, record and deletion of the message are one transaction of PostgreSQL (level L3).
//!
//! ```text
//! psql shop -f pgmq.sql    # or CREATE EXTENSION pgmq
//! cargo run -p idempotent-examples --features pgmq --example pgmq -- pgmq://app@localhost/shop
//! SELECT pgmq.send('orders', '{"number": 1, "cents": 500}');    -- charged
//! SELECT pgmq.send('orders', '{"number": 1, "cents": 500}');    -- sent twice: deleted, not charged
//! SELECT pgmq.send('orders', '{"number": 2, "cents": 0}');      -- fails, and is retried
//! SELECT pgmq.send('orders', '"what?"');                        -- dead-lettered at once
//! SELECT message, headers FROM pgmq.q_orders_dead;
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use idempotent::mq::{Consumer, Message, Messages, SourceError};
use idempotent::pgmq::{PgmqMessage, PgmqSource};
use idempotent::{Executor, PostgresStore, Rejection, idempotent};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::signal::unix::{SignalKind, signal};

#[derive(serde::Deserialize)]
struct Order {
    number: i64,
    cents: i64,
}

#[derive(Debug, thiserror::Error)]
enum ChargeError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Queue(#[from] SourceError),
    #[error("nothing to charge")]
    Nothing,
}

/// Charges an order, and deletes its message. A process that dies after the commit leaves no message to redeliver.
#[idempotent(scene = mq, scope = "charge", key = message.body.number, transaction = tx)]
async fn charge(message: &Message<Order>, tx: &mut Transaction<'_, Postgres>) -> Result<(), ChargeError> {
    let Order { number, cents } = message.body;
    if cents == 0 {
        return Err(ChargeError::Nothing);
    }
    let insert = sqlx::query("INSERT INTO charges (number, cents) VALUES ($1, $2)").bind(number).bind(cents);
    insert.execute(&mut **tx).await?;
    PgmqMessage::of(&message.delivery)?.delete_in(tx).await?;
    println!("order {number}: charged {cents} cents");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "pgmq://app@localhost/shop".to_owned());
    // The same database, by the scheme of its other clients.
    let database = url.replacen("pgmq://", "postgres://", 1);
    let pool = PgPool::connect(&database).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS charges (number bigint, cents bigint)").execute(&pool).await?;
    let executor = Executor::new(PostgresStore::builder(&database).create(true).connect().await?);
    let source = PgmqSource::builder(url, "orders").declare().connect().await?;
    let handling = Messages::json().annotated(|message: Message<Order>| async move { charge(&message).await });
    let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {} _ = tokio::signal::ctrl_c() => {} }
    };
    let counts = consumer.run(stop).await?;
    println!("{} acknowledged, {} retried, {} dead-lettered", counts.acked, counts.retried, counts.dead_lettered);
    Ok(())
}
