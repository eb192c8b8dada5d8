//! Sends alerts of an executor to a signed webhook: held order, parked steps, and a lease whose runtime is blocked.
//!
//! Run the example with `cargo run -p idempotent-examples --example alerts`. Each problem gives one alert with its count, in the log
//! and at the webhook, which this program receives itself. The example `broker_alerts` shows alerts of a consumer and an outbox.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent::alert::{AlertObserver, AlertWebhook, WebhookRequest};
use idempotent::{Alerts, Executor, MemoryStore, Outcome, Policy, Rejection, Scene, Tracing, idempotent, step};
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

/// Books an entry after its predecessor, which never arrives.
#[idempotent(key = number, after = number - 1, scope = "entries", on_broken_order = hold("1ms"))]
async fn book(number: u64) -> Result<(), Rejection> {
    println!("never printed: entry {number}");
    Ok(())
}

/// Charges a card in a step that fails, and that must not start twice.
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

    println!("1. a message is held for its order, and comes three times");
    let mut held = 0;
    while held < 3 {
        let (_, outcome) = Outcome::capture(executor.scope(book(17))).await;
        held += usize::from(matches!(outcome, Some(Outcome::Held { .. })));
        sleep(Duration::from_millis(2)).await;
    }

    println!("2. three runs are parked at a step");
    for order in 1..=3 {
        let (_, outcome) = Outcome::capture(executor.scope(charge(order))).await;
        assert!(matches!(outcome, Some(Outcome::Dead { .. })));
    }

    println!("3. a handler blocks its thread");
    executor.scope(report(1, &receiver)).await?;

    // A program flushes before it exits: alerts that still wait are sent.
    assert!(alerts.flush(Duration::from_secs(60)).await);
    let counts = receiver.counts();
    println!("{counts:?}, {:?}", alerts.counts());
    for kind in ["order_held", "steps_parked"] {
        assert_eq!(counts.get(kind), Some(&3), "{kind}");
    }
    assert!(counts.contains_key("runtime_blocked"));
    Ok(())
}
