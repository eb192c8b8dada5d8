//! Writes a payment and its message in one transaction; a relay sends the message after the commit.
//!
//! ```text
//! cargo run -p idempotent-examples --example outbox
//! ```
//!
//! The broker of this example prints what it receives, and refuses the first send. The application `outbox_payment` in
//! `apps/outbox_payment` adds a consumer, a crash and a lost message.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent::outbox::{Outbox, Relay, ResendPolicy};
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

/// A broker that is down at the first call. `RabbitPublisher` and others implement the same trait.
#[derive(Debug, Default)]
struct Broker {
    calls: AtomicU32,
    accepted: AtomicU32,
}

#[async_trait]
impl Publish for Broker {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            println!("broker: down");
            return messages.iter().map(|_| Err(PublishError::new(PublishErrorKind::Unsent, "down"))).collect();
        }
        let accept = |message: &OutboundMessage| {
            let number = u64::from(self.accepted.fetch_add(1, Ordering::SeqCst));
            println!("broker: {} {}", message.id, String::from_utf8_lossy(&message.body));
            Ok(Published::at(idempotent::mq::Position::of(message.topic.as_str()).partition(0).offset(number)))
        };
        messages.iter().map(accept).collect()
    }
}

/// Writes a payment and its message: both are committed, or neither.
async fn pay(pool: &SqlitePool, outbox: &Outbox<Sqlite>, order: i64, is_valid: bool) -> anyhow::Result<()> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("INSERT INTO payment VALUES (?)").bind(order).execute(&mut *tx).await?;
    // The producer chooses the id: all sends of a message have the same id.
    let message = OutboundMessage::new("payments", format!("payment-{order}"), format!(r#"{{"order":{order}}}"#));
    outbox.enqueue(&mut tx, &message).await?;
    if is_valid {
        tx.commit().await?;
        outbox.wake();
    } else {
        tx.rollback().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    sqlx::query("CREATE TABLE payment (number INTEGER PRIMARY KEY)").execute(&pool).await?;
    let outbox = Outbox::builder(pool.clone()).create(true).open().await?;

    pay(&pool, &outbox, 16, false).await?;
    assert!(outbox.inspect("payment-16").await?.is_none(), "a rollback leaves no message");
    for order in [17, 18] {
        pay(&pool, &outbox, order, true).await?;
    }

    let broker = Arc::new(Broker::default());
    let resends = ResendPolicy::new().backoff(Duration::from_millis(100), Duration::from_secs(1));
    let relay = Relay::new(&outbox, broker.clone()).resends(resends).poll(Duration::from_millis(50));
    let both_are_sent = async {
        while broker.accepted.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    relay.run(both_are_sent).await;
    assert_eq!(broker.accepted.load(Ordering::SeqCst), 2, "each message once");
    Ok(())
}
