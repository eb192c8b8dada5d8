//! Temporary.
#![allow(missing_docs, dead_code)]
use std::sync::Arc;
use std::time::Duration;

use idempotent::alert::{AlertEmail, AlertWebhook, WebhookRequest};
use idempotent::mq::{Consumer, Handling, Publish, Source};
use idempotent::outbox::{Outbox, Relay};
use idempotent::{AlertObserver, Alerts, Executor, MemoryStore, Tracing};

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn serve<S: Source>(
    source: S,
    handling: Handling,
    outbox: &Outbox<sqlx::Sqlite>,
    publisher: Arc<dyn Publish>,
) -> Result<(), Failure> {
    let webhook = AlertWebhook::new(std::env::var("ALERT_SECRET")?, |request: WebhookRequest| async move {
        // client.post("https://ops.example/alerts").headers(request.headers).body(request.body).send()
        let _ = request;
        Ok::<_, std::io::Error>(())
    });
    let email = AlertEmail::new(&std::env::var("SMTP_URL")?, "orders@example.com", ["ops@example.com"])?;
    let alerts = Alerts::builder().sender(webhook).sender(email).start()?; // and to the log

    let observer = (Tracing, AlertObserver::new(&alerts));
    let executor = Executor::builder(MemoryStore::new()).observer(observer).build()?;
    let consumer = Consumer::builder(source, "billing", &executor).alerts(&alerts).build(handling)?;
    let relay = Relay::new(outbox, publisher).alerts(Arc::new(alerts.clone()));
    let stop = || async { drop(tokio::signal::ctrl_c().await) };
    let (consumed, _) = tokio::join!(consumer.run(stop()), relay.run(stop()));
    executor.drain(Duration::from_secs(10)).await;
    alerts.flush(Duration::from_secs(20)).await; // what still waits
    consumed?;
    Ok(())
}

fn main() {}
