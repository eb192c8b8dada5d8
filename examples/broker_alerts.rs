//! Sends alerts of a consumer and of an outbox to a signed webhook: dead letters, and messages that the relay gives up.
//!
//! Run the example with `cargo run -p idempotent-examples --example broker_alerts`. Each problem occurs three times and gives one
//! alert with its count. The example `alerts` shows alerts of an executor.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::alert::{AlertWebhook, WebhookRequest};
use idempotent::delay::{DelayTable, ScheduledTask};
use idempotent::mq::{
    Consumer, HandlerResult, KeyFrom, Message, Messages, OutboundMessage, Publish, PublishError, PublishErrorKind,
    Published,
};
use idempotent::outbox::{Outbox, Relay, ResendPolicy};
use idempotent::{Alerts, Executor, MemoryStore};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::time::sleep;

type Failure = Box<dyn Error + Send + Sync>;

/// A receiver of the webhook, with the number of alerts of each kind.
#[derive(Clone, Debug, Default)]
struct Receiver(Arc<Mutex<BTreeMap<String, u64>>>);

impl Receiver {
    /// Replaces a POST by an HTTP client. A real receiver checks the signature.
    async fn receive(self, request: WebhookRequest) -> Result<(), serde_json::Error> {
        let alert: serde_json::Value = serde_json::from_str(&request.body)?;
        println!("webhook: {}", request.body);
        let kind = alert["kind"].as_str().unwrap_or_default().to_owned();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(kind).or_default() += alert["count"].as_u64().unwrap_or_default();
        Ok(())
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A broker that refuses every message.
#[derive(Debug)]
struct Refusing;

#[async_trait]
impl Publish for Refusing {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        messages.iter().map(|_| Err(PublishError::new(PublishErrorKind::Refused, "there is no such topic"))).collect()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let receiver = Receiver::default();
    let posts = receiver.clone();
    let webhook = AlertWebhook::new("a secret of 32 bytes or more ....", move |request| posts.clone().receive(request));
    let alerts = Alerts::builder().gather(Duration::from_secs(2)).sender(webhook).start()?;

    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new().filename(folder.path().join("orders.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;

    println!("1. a consumer dead-letters three messages");
    // The delay table delivers at once here; the alerts are the same with each broker.
    let table = DelayTable::builder(pool.clone()).create(true).open().await?;
    for order in 1..=3 {
        table.put(&ScheduledTask::after(format!("order-{order}"), Duration::ZERO, "{}")).await?;
    }
    let executor = Executor::new(MemoryStore::new());
    let refuse = |_: Message<()>| async { HandlerResult::Never { reason: "no such article".into() } };
    let handler = Messages::raw().keyed(KeyFrom::message_id()).run(refuse);
    let consumer = Consumer::builder(table.source(), "billing", &executor).alerts(&alerts).build(handler)?;
    let counters = consumer.counters();
    let consumer = tokio::spawn(consumer.run(std::future::pending()));

    println!("2. an outbox gives three messages up");
    let outbox = Outbox::builder(pool.clone()).create(true).open().await?;
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    for order in 1..=3 {
        let message = OutboundMessage::new("orders", format!("order-{order}"), "{}");
        outbox.enqueue(&mut tx, &message).await?;
    }
    tx.commit().await?;
    let relay = Relay::new(&outbox, Arc::new(Refusing)).alerts(Arc::new(alerts.clone()));
    let relay = relay.resends(ResendPolicy::new().max_sends(1)).poll(Duration::from_millis(100));
    let relay = tokio::spawn(async move { relay.run(std::future::pending()).await });

    until(|| counters.counts().dead_lettered == 3 && alerts.counts().raised >= 6).await;
    consumer.abort();
    relay.abort();
    assert!(alerts.flush(Duration::from_secs(60)).await);
    let counts = receiver.counts();
    println!("{counts:?}, {:?}", alerts.counts());
    for kind in ["dead_letter", "message_given_up"] {
        assert_eq!(counts.get(kind), Some(&3), "{kind}");
    }
    Ok(())
}

/// Waits for the condition, for at most a minute.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}
