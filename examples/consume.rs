//! Consumes webhook deliveries from a file, with one effect for each delivery id.
//!
//! ```text
//! cargo run -p idempotent-examples --example consume                  # 494 deliveries, 287 distinct
//! cargo run -p idempotent-examples --example consume -- shop.db       # keeps the records: no second run of a handler
//! ```
//!
//! The input is `examples/data/webhooks.jsonl`: real payloads with redeliveries. The application `consume` in `apps/consume` does
//! the same over brokers and several stores, and handles malformed input, retries and crashes.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use idempotent::{Disposition, Executor, Rejection, SqliteStore, idempotent};
use serde::Deserialize;
use tokio::task::JoinSet;

const INPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/webhooks.jsonl");
const WORKERS: usize = 4;

#[derive(Debug, Deserialize)]
struct Webhook {
    delivery_id: String,
    event: String,
}

/// The effect: the number of deliveries of each event.
#[derive(Clone, Debug, Default)]
struct Events(Arc<Mutex<BTreeMap<String, u64>>>);

impl Events {
    fn add(&self, event: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(event.to_owned()).or_default() += 1;
    }

    fn total(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// Runs once for each delivery id. A duplicate gets the recorded result.
#[idempotent(scene = mq, scope = "webhooks", key = webhook.delivery_id, with = executor)]
async fn count(executor: &Executor, webhook: &Webhook, events: &Events) -> Result<(), Rejection> {
    events.add(&webhook.event);
    Ok(())
}

/// Handles every delivery whose number leaves the remainder `worker`. A key in flight at another worker is retried.
async fn work(worker: usize, lines: Arc<Vec<String>>, executor: Executor, events: Events) -> anyhow::Result<()> {
    for (number, line) in lines.iter().enumerate().skip(worker).step_by(WORKERS) {
        let webhook: Webhook = serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
        loop {
            match Disposition::of(count(&executor, &webhook, &events)).await.1 {
                Disposition::Retry { after } => tokio::time::sleep(after).await,
                Disposition::DeadLetter { reason } => anyhow::bail!("line {}: dead-lettered: {reason}", number + 1),
                _ => break,
            }
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let temporary = folder.path().join("records.db").display().to_string();
    let store = std::env::args().nth(1).unwrap_or(temporary);
    let is_new = !Path::new(&store).exists();
    let executor = Executor::new(SqliteStore::open(&store).await?);

    let input = std::fs::read_to_string(INPUT).with_context(|| format!("cannot read {INPUT}"))?;
    let lines: Arc<Vec<String>> = Arc::new(input.lines().map(str::to_owned).collect());
    let events = Events::default();
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        workers.spawn(work(worker, lines.clone(), executor.clone(), events.clone()));
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }

    let replayed = executor.counts().of("replayed");
    println!("{} deliveries: {} effects, {replayed} duplicates", lines.len(), events.total());
    if is_new {
        assert_eq!((lines.len(), events.total()), (494, 287));
    }
    Ok(())
}
