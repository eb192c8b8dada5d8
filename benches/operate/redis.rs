//! Redis with default settings, on the loopback interface.
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{Claim, ClaimHandle, Completion, Release, ReleaseKind};
use idempotent::{RedisStore, Store};
use idempotent_harness::servers::RedisServer;

use crate::claims::{held, request};
use crate::relay::Relay;
use crate::{DEAD, Side};

const BATCH: u64 = 500;

pub struct RedisSide {
    _server: RedisServer,
    store: RedisStore,
    operator: RedisStore,
    relay: Relay,
}

impl RedisSide {
    pub async fn start(records: u64) -> Self {
        let server = RedisServer::start();
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
        let pid = server.pid();
        let relay = Relay::start(server.address(), Arc::new(move |_| Some(pid)));
        let operator = RedisStore::builder(format!("redis://{}", relay.address())).cache(None).connect().await.unwrap();
        Self { _server: server, store, operator, relay }
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

    fn relay(&self) -> &Relay {
        &self.relay
    }
}
