//! Keys that a dead worker of an earlier run holds.
//!
//! A live worker renews its leases after each third of their length. A worker that has not renewed for half of the
//! length is probably dead. The job still waits for the end of the leases, because that worker may only be slow.
use std::time::{Duration, SystemTime};

use idempotent::store::{KeyFilter, PageLimits, Record, RecordEntry, State};
use idempotent::{Executor, Identity, Scene, StoreError, Timestamp};
use tokio::time::{Instant, sleep_until};

use crate::SCOPE;
use crate::screen::Screen;

/// The keys that were in flight before this process claimed any key.
pub(crate) struct Held(Vec<RecordEntry>);

impl Held {
    /// Looks through the store, if it can list its records.
    pub(crate) async fn look(executor: &Executor, screen: &Screen) -> Self {
        let mut held = records(executor).await.unwrap_or_else(|error| {
            screen.say(&format!("keys held by dead workers are not announced: {error}"));
            Vec::new()
        });
        held.retain(|entry| lease(&entry.record).is_some());
        Self(held)
    }

    /// Prints the number of keys as soon as it is certain that no worker renews them.
    pub(crate) async fn announce(self, executor: Executor, screen: Screen) {
        let now = now();
        // The same clock judges both where the store is a file.
        let certain = |record: &Record| record.updated_at + lease(record).unwrap_or_default() / 2;
        let wait = self.0.iter().map(|entry| certain(&entry.record) - now).max().unwrap_or_default();
        let mut dead = Vec::new();
        let (later, sure): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|entry| certain(&entry.record) > now);
        dead.extend(sure.into_iter().map(|entry| entry.record));
        if !later.is_empty() {
            sleep_until(Instant::now() + wait).await;
        }
        for entry in later {
            // A store that fails here fails at the claims too, and is reported there.
            if let Ok(Some(record)) = executor.store().peek(&entry.key).await
                && record.updated_at == entry.record.updated_at
            {
                dead.push(record);
            }
        }
        let now = self::now();
        let rest = dead.iter().map(|record| record.updated_at + lease(record).unwrap_or_default() - now).max();
        if let Some(rest) = rest {
            let seconds = rest.as_millis().div_ceil(1000);
            screen.say(&format!("{} keys held by a dead worker, free in {seconds} s", dead.len()));
        }
    }
}

/// This example's records, if the store can list any.
pub(crate) async fn records(executor: &Executor) -> Result<Vec<RecordEntry>, StoreError> {
    let Some(search) = executor.store().capabilities().search else { return Ok(Vec::new()) };
    // Of a key only the readable part counts here: the scope it is in.
    let any = Identity::new(Scene::Mq, SCOPE, "any").key(executor.namespace());
    let name = any.as_ref().map_or("", |key| key.name());
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = search.search(&KeyFilter::all(), after, PageLimits { keys: 10_000, examined: 10_000 }).await?;
        found.extend(page.entries.into_iter().filter(|entry| entry.key.name() == name));
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Returns the length of the lease at its last renewal, or `None` if the key is not held.
fn lease(record: &Record) -> Option<Duration> {
    match record.state {
        State::Consuming { until, .. } => Some(until - record.updated_at),
        _ => None,
    }
}

fn now() -> Timestamp {
    Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}
