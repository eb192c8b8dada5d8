//! A payment, and its bonus points in another service. Each payment is booked once and gives points once, under all faults
//! of this program.
//!
//! Run it with `cargo run -p idempotent-outbox-payment`; no server is needed. The order service writes payment and message
//! in one transaction, and its relay sends the message until it is confirmed. The points service records the message, and
//! books points and key in one transaction of its own database. It confirms the message, and then acknowledges it. The
//! program simulates three faults: an unavailable broker, a consumer that dies between its effect and its acknowledgement,
//! and a broker that loses an accepted message.
#![allow(clippy::print_stdout, reason = "an example")]
mod queue;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use idempotent::mq::{Consumer, Message, Messages, OutboundMessage};
use idempotent::outbox::{Outbox, OutboxStatus, Relay, ResendPolicy};
use idempotent::{Executor, Rejection, SqliteStore, idempotent};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Sqlite, Transaction};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::queue::Queue;

type Failure = Box<dyn Error + Send + Sync>;

/// The content of the message.
#[derive(serde::Deserialize, serde::Serialize)]
struct Paid {
    order: u64,
    cents: u64,
}

/// The order service. Its database contains the outbox.
struct Orders {
    pool: SqlitePool,
    outbox: Outbox<Sqlite>,
}

impl Orders {
    async fn open(folder: &Path) -> Result<Self, Failure> {
        let pool = database(&folder.join("orders.db")).await?;
        sqlx::query("CREATE TABLE payment (number INTEGER PRIMARY KEY, cents INTEGER)").execute(&pool).await?;
        let outbox = Outbox::builder(pool.clone()).create(true).open().await?;
        Ok(Self { pool, outbox })
    }

    /// The payment and its message are there, both, or neither is.
    async fn pay(&self, order: u64, cents: u32, goes_well: bool) -> Result<(), Failure> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let payment = sqlx::query("INSERT INTO payment VALUES (?, ?)").bind(i64::try_from(order)?).bind(cents);
        payment.execute(&mut *tx).await?;
        let body = serde_json::to_vec(&Paid { order, cents: cents.into() })?;
        // The id is the payment's: however often it is sent, it is one message.
        let paid = OutboundMessage::new("payments", id(order), body).aggregate(format!("order-{order}"));
        self.outbox.enqueue(&mut tx, &paid).await?;
        if goes_well {
            tx.commit().await?;
            self.outbox.wake();
        } else {
            tx.rollback().await?;
        }
        Ok(())
    }

    /// Returns the status of an order's message.
    async fn status(&self, order: u64) -> Result<Option<(OutboxStatus, u32)>, Failure> {
        let found = self.outbox.inspect(&id(order)).await?;
        Ok(found.map(|(stub, _)| (stub.status, stub.sends)))
    }

    async fn is_confirmed(&self, order: u64) -> Result<(), Failure> {
        until(async || Ok(matches!(self.status(order).await?, Some((OutboxStatus::Confirmed, _))))).await
    }
}

#[derive(Debug, thiserror::Error)]
enum PointsError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Adds the points in the transaction of the key, so a crash undoes both.
#[idempotent(scene = mq, scope = "points", key = payment, transaction = tx)]
async fn add_points(payment: &str, paid: &Paid, tx: &mut Transaction<'_, Sqlite>) -> Result<(), PointsError> {
    let points = i64::try_from(paid.cents / 100).unwrap_or_default();
    let insert = sqlx::query("INSERT INTO points (payment, points) VALUES (?, ?)").bind(payment).bind(points);
    insert.execute(&mut **tx).await?;
    println!("points service: {points} points for order {}", paid.order);
    Ok(())
}

/// A consumer of the points service, as a process of it.
fn points_service(queue: &Queue, executor: &Executor, outbox: &Outbox<Sqlite>) -> Result<JoinHandle<()>, Failure> {
    let handling = Messages::json().annotated(|message: Message<Paid>| async move {
        let payment = message.delivery.id.clone().unwrap_or_default();
        add_points(&payment, &message.body).await
    });
    let consumer = Consumer::builder(queue.clone(), "points", executor).log(Arc::new(outbox.clone()));
    let consumer = consumer.build(handling)?;
    Ok(tokio::spawn(async move { drop(consumer.run(std::future::pending()).await) }))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (orders, queue) = (Orders::open(folder.path()).await?, Queue::default());
    let file = folder.path().join("points.db");
    let points = database(&file).await?;
    sqlx::query("CREATE TABLE points (payment TEXT, points INTEGER)").execute(&points).await?;
    let executor = Executor::new(SqliteStore::open(file.display().to_string()).await?);

    // Short times, so that it is over soon.
    let resends = ResendPolicy::new().backoff(Duration::from_millis(300), Duration::from_secs(1));
    let resends = resends.backlog(Duration::ZERO).look_again(Duration::from_millis(100));
    let relay = Relay::new(&orders.outbox, Arc::new(queue.clone())).resends(resends).poll(Duration::from_millis(50));
    let relay = tokio::spawn(async move { relay.run(std::future::pending()).await });

    println!("1. a payment that is rolled back announces nothing");
    orders.pay(16, 900, false).await?;
    assert!(orders.status(16).await?.is_none());

    println!("2. the broker is down while order 17 is paid");
    queue.is_down(true);
    orders.pay(17, 1_700, true).await?;
    let failed = async || Ok(orders.outbox.inspect(&id(17)).await?.is_some_and(|(stub, _)| stub.failures > 0));
    until(failed).await?;
    println!(
        "   order service: paid; the message waits, and none of its sendings is used up: {:?}",
        orders.status(17).await?
    );
    queue.is_down(false);
    until(async || Ok(queue.kept() == 1)).await?;
    println!("   it is up again, and has the message");

    println!("3. a consumer dies between its effect and its acknowledgement");
    queue.is_deaf(true);
    let consumer = points_service(&queue, &executor, &orders.outbox)?;
    orders.is_confirmed(17).await?;
    consumer.abort();
    let _ = consumer.await;
    queue.is_deaf(false);
    println!("   it is gone; {} message is delivered again", queue.redeliver());
    let consumer = points_service(&queue, &executor, &orders.outbox)?;
    until(async || Ok(queue.kept() == 0)).await?;
    println!("   delivered {} times, acknowledged as a duplicate", queue.delivered());

    println!("4. the broker accepts the message of order 18, and loses it");
    queue.lose_next();
    orders.pay(18, 1_800, true).await?;
    until(async || Ok(matches!(orders.status(18).await?, Some((_, 1))))).await?;
    orders.pay(19, 1_900, true).await?;
    orders.is_confirmed(19).await?;
    println!("   order 19 was sent behind it and has its points: the queue was read beyond the place of order 18");
    orders.is_confirmed(18).await?;
    println!("   order service: sent again, by the same id: {:?}", orders.status(18).await?);

    relay.abort();
    consumer.abort();
    let booked = "SELECT payment, points FROM points ORDER BY payment";
    let booked: Vec<(String, i64)> = sqlx::query_as(booked).fetch_all(&points).await?;
    assert_eq!(booked, [(id(17), 17), (id(18), 18), (id(19), 19)]);
    println!("each payment has its points once: {booked:?}");
    Ok(())
}

fn id(order: u64) -> String {
    format!("payment-{order}")
}

async fn database(file: &Path) -> Result<SqlitePool, Failure> {
    Ok(SqlitePool::connect_with(SqliteConnectOptions::new().filename(file).create_if_missing(true)).await?)
}

/// Waits until it is so; half a minute is far more than it takes.
async fn until(so: impl AsyncFn() -> Result<bool, Failure>) -> Result<(), Failure> {
    for _ in 0..3_000 {
        if so().await? {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err("it did not come about within half a minute".into())
}
