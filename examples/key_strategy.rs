//! Shows a key strategy of the application: `by = ByEvent` derives key, fingerprint and retention of webhooks.
//!
//! The program receives each webhook as a message and as a request. One strategy serves both scenes, and two types of
//! sources.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example that asserts what it shows")]
use std::time::Duration;

use idempotent::key::{DerivedKey, Fingerprint, KeyStrategy, Scene};
use idempotent::{Executor, MemoryStore, Outcome, Policy, Rejection, idempotent};

struct Webhook {
    sender: String,
    event: String,
    body: String,
}

/// A webhook of a sender that numbers its events instead of naming them.
struct NumberedWebhook {
    sender: String,
    number: u64,
}

/// The application's strategy: an event of a sender is handled once.
struct ByEvent {
    retention_days: u64,
}

impl ByEvent {
    fn policy(&self, scene: &Scene) -> Policy {
        // A broker redelivers for days, while a client that waits for its response gives up within the hour.
        let hours = if *scene == Scene::Mq { self.retention_days * 24 } else { 1 };
        Policy::new().retain(Duration::from_secs(hours * 3600))
    }
}

impl KeyStrategy<Webhook> for ByEvent {
    fn derive(&self, scene: &Scene, webhook: &Webhook) -> DerivedKey {
        DerivedKey::new(&(&webhook.sender, &webhook.event))
            .fingerprint(Fingerprint::of(&webhook.body))
            .policy(self.policy(scene))
    }
}

impl KeyStrategy<NumberedWebhook> for ByEvent {
    fn derive(&self, scene: &Scene, webhook: &NumberedWebhook) -> DerivedKey {
        DerivedKey::new(&(&webhook.sender, webhook.number)).policy(self.policy(scene))
    }
}

const STRATEGY: ByEvent = ByEvent { retention_days: 30 };

#[idempotent(by = STRATEGY, key = webhook, scope = "webhook-message")]
async fn on_message(webhook: &Webhook) -> Result<String, Rejection> {
    println!("handling the message {}", webhook.event);
    Ok(format!("{} handled", webhook.event))
}

#[idempotent(by = STRATEGY, key = webhook, scene = rest, scope = "webhook-request")]
async fn on_request(webhook: Webhook) -> Result<String, Rejection> {
    println!("handling the request {}", webhook.event);
    Ok(format!("{} handled", webhook.event))
}

/// A service that holds its strategy in a field. The attribute's `retain` overrides the strategy's.
struct Receiver {
    strategy: ByEvent,
}

impl Receiver {
    #[idempotent(by = self.strategy, key = webhook, scope = "numbered", retain = "90d")]
    async fn on_number(&self, webhook: NumberedWebhook) -> Result<u64, Rejection> {
        println!("handling number {}", webhook.number);
        Ok(webhook.number)
    }
}

fn webhook(body: &str) -> Webhook {
    Webhook { sender: "bank".into(), event: "e-17".into(), body: body.into() }
}

#[tokio::main]
async fn main() {
    let executor = Executor::new(MemoryStore::new());
    executor.scope(receive()).await;
}

async fn receive() {
    on_message(&webhook("paid")).await.unwrap();
    let (answer, outcome) = Outcome::capture(on_message(&webhook("paid"))).await;
    println!("the duplicate got {:?}", answer.unwrap());
    assert_eq!(outcome, Some(Outcome::Replayed));

    let changed = on_message(&webhook("refunded")).await;
    println!("the same event with another body: {}", changed.unwrap_err());

    // Another scene and scope: another key.
    let (_, outcome) = Outcome::capture(on_request(webhook("paid"))).await;
    assert_eq!(outcome, Some(Outcome::Ran));

    let receiver = Receiver { strategy: ByEvent { retention_days: 7 } };
    for _ in 0..2 {
        let webhook = NumberedWebhook { sender: "bank".into(), number: 18 };
        assert_eq!(receiver.on_number(webhook).await.unwrap(), 18);
    }

    // A strategy that finds no event derives no shared constant: the call is an error.
    let unnamed = Webhook { event: String::new(), ..webhook("paid") };
    println!("without an event: {}", on_message(&unnamed).await.unwrap_err());
}

#[test]
fn one_strategy_serves_both_scenes() {
    main();
}
