//! Redis with default settings, on the loopback interface. The server's log of slow commands has the longest one.
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{Claim, ClaimHandle, Completion, Release, ReleaseKind};
use idempotent::{RedisStore, Store};
use idempotent_harness::servers::{RedisServer, Value};

use crate::claims::{held, request};
use crate::{DEAD, Side};

/// Commands that take longer are recorded, in µs.
const SLOW: &str = "200";
const BATCH: u64 = 500;

pub struct RedisSide {
    server: RedisServer,
    store: RedisStore,
    operator: RedisStore,
}

impl RedisSide {
    pub async fn start(records: u64) -> Self {
        let server = RedisServer::start();
        server.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
        let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
        let (batch, mut numbers) = (store.capabilities().batch.unwrap(), 0..records);
        loop {
            let requests: Vec<_> = numbers.by_ref().take(BATCH as usize).map(request).collect();
            if requests.is_empty() {
                break;
            }
            let claims = batch.claim_all(&requests).await;
            let done: Vec<(ClaimHandle, Completion)> = requests
                .iter()
                .zip(claims)
                .map(|(request, claim)| {
                    let Ok(Claim::Acquired(grant)) = claim else { panic!("{claim:?}") };
                    let held = ClaimHandle { fencing: Some(grant.fencing), ..held(request) };
                    (held, Completion { value: None, retain: Duration::from_secs(24 * 3_600) })
                })
                .collect();
            assert!(batch.complete_all(&done).await.iter().all(Result::is_ok));
        }
        for number in records..records + DEAD {
            store.claim(&request(number)).await.unwrap();
            let retention = Duration::from_secs(24 * 3_600);
            let dead =
                Release { kind: ReleaseKind::MarkDead, delay: Duration::ZERO, retention, error: "no stock".into() };
            store.release(&held(&request(number)), &dead).await.unwrap();
        }
        let operator = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
        Self { server, store, operator }
    }
}

impl Side for RedisSide {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn operator(&self) -> Arc<dyn Store> {
        Arc::new(self.operator.clone())
    }

    fn watch(&self) {
        self.server.command(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW]);
        self.server.command(&["SLOWLOG", "RESET"]);
    }

    fn longest_ms(&self) -> f64 {
        let Value::Array(entries) = self.server.command(&["SLOWLOG", "GET", "-1"]) else { panic!("no slow log") };
        self.server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
        // An entry: its id, the time, the duration in µs, the command. `SLOWLOG RESET` is in the log itself.
        let duration = |entry: &Value| match entry.items() {
            [_, _, _, command, ..] if command.items().first().is_some_and(|name| name.text() == "SLOWLOG") => 0,
            [_, _, duration, ..] => duration.integer().unwrap_or_default(),
            _ => 0,
        };
        // Nothing slow: the threshold is an upper bound.
        let least = SLOW.parse().unwrap_or_default();
        entries.iter().map(duration).max().unwrap_or(least).max(least) as f64 / 1e3
    }
}
