//! One alert path for five sources: a dead letter, held order, parked steps, a message that an outbox gives up, and a lease
//! whose runtime is blocked.
//!
//! Run it by `cargo run -p idempotent-examples --example alerts`; it needs no server. Each problem occurs three times or more,
//! and gives one alert with its count. Alerts go to the log, and to a signed webhook that this program receives itself.
#![allow(clippy::print_stdout, reason = "an example")]
#[allow(dead_code, reason = "another example uses the rest of the queue")]
#[path = "outbox_payment/queue.rs"]
mod queue;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::alert::AlertObserver;
use idempotent::alert::{AlertWebhook, WebhookRequest};
use idempotent::mq::{
    Consumer, HandlerResult, KeyFrom, Message, Messages, OutboundMessage, Publish, PublishError, PublishErrorKind,
    Published,
};
use idempotent::outbox::{Outbox, Relay, ResendPolicy};
use idempotent::{Alerts, Executor, MemoryStore, Outcome, Policy, Rejection, Scene, Tracing, idempotent, step};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::time::sleep;

use self::queue::Queue;

type Failure = Box<dyn Error + Send + Sync>;

/// The receiver of the webhook: the count of each kind of alert.
#[derive(Clone, Debug, Default)]
struct Receiver(Arc<Mutex<BTreeMap<String, u64>>>);

impl Receiver {
    /// In earnest, this is a POST by your HTTP client, and the receiver checks the signature.
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

/// Comes after a call that nobody makes.
#[idempotent(key = number, after = number - 1, scope = "entries", on_broken_order = hold("1ms"))]
async fn book(number: u64) -> Result<(), Rejection> {
    println!("never printed: entry {number}");
    Ok(())
}

/// Its only step fails, and must not be begun twice.
#[idempotent(key = order, scope = "charges")]
async fn charge(order: u64) -> Result<(), Rejection> {
    let card = step("charge_card", || async { Err::<(), _>(Rejection::LeaseLost) }).at_most_once();
    card.await?;
    println!("never printed: order {order} is charged");
    Ok(())
}

/// Blocks its thread until the alert about that has arrived.
#[idempotent(key = number, scope = "reports", lease = "6s")]
async fn report(number: u64, receiver: &Receiver) -> Result<(), Rejection> {
    while !receiver.counts().contains_key("runtime_blocked") {
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("report {number} is done");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let receiver = Receiver::default();
    let posts = receiver.clone();
    let webhook = AlertWebhook::new("a secret of 32 bytes or more ....", move |request| posts.clone().receive(request));
    let alerts = Alerts::builder().gather(Duration::from_secs(2)).sender(webhook).start()?;

    // Held and broken order, parked steps, blocked runtimes and lost leases are events of the executor.
    let executor = Executor::builder(MemoryStore::new())
        .policy(Scene::Mq, Policy::new().max_retries(0))
        .observer((Tracing, AlertObserver::new(&alerts)))
        .build()?;

    println!("1. a consumer dead-letters three messages");
    let queue = Queue::default();
    let refuse = |_: Message<()>| async { HandlerResult::Never { reason: "no such article".into() } };
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(refuse);
    let consumer = Consumer::builder(queue.clone(), "billing", &executor).alerts(&alerts).build(handling)?;
    let counters = consumer.counters();
    let consumer = tokio::spawn(consumer.run(std::future::pending()));
    let orders: Vec<_> = (1..=3).map(|order| OutboundMessage::new("orders", format!("order-{order}"), "{}")).collect();
    queue.publish(&orders).await;

    println!("2. an outbox gives three messages up");
    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new().filename(folder.path().join("orders.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    let outbox = Outbox::builder(pool.clone()).create(true).open().await?;
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    for message in &orders {
        outbox.enqueue(&mut tx, message).await?;
    }
    tx.commit().await?;
    let relay = Relay::new(&outbox, Arc::new(Refusing)).alerts(Arc::new(alerts.clone()));
    let relay = relay.resends(ResendPolicy::new().max_sends(1)).poll(Duration::from_millis(100));
    let relay = tokio::spawn(async move { relay.run(std::future::pending()).await });

    println!("3. a message is held for its order, and comes three times");
    let mut held = 0;
    while held < 3 {
        let (_, outcome) = Outcome::capture(executor.scope(book(17))).await;
        held += usize::from(matches!(outcome, Some(Outcome::Held { .. })));
        sleep(Duration::from_millis(2)).await;
    }

    println!("4. three runs are parked at a step");
    for order in 1..=3 {
        let (_, outcome) = Outcome::capture(executor.scope(charge(order))).await;
        assert!(matches!(outcome, Some(Outcome::Dead { .. })));
    }

    println!("5. a handler blocks its thread");
    executor.scope(report(1, &receiver)).await?;

    until(|| counters.counts().dead_lettered == 3 && alerts.counts().raised >= 13).await;
    consumer.abort();
    relay.abort();
    // At the end of the process: what still waits is sent.
    assert!(alerts.flush(Duration::from_secs(60)).await);
    let counts = receiver.counts();
    println!("{counts:?}, {:?}", alerts.counts());
    for (kind, count) in [("dead_letter", 3), ("message_given_up", 3), ("order_held", 3), ("steps_parked", 3)] {
        assert_eq!(counts.get(kind), Some(&count), "{kind}");
    }
    assert!(counts.contains_key("runtime_blocked"));
    Ok(())
}

/// Waits until this holds, or for a minute.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}
