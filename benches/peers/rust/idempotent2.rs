//! The crate `idempotent`, version 2, with its store for Redis.
use std::time::Duration;

use idempotent::valkey::ValkeyStore;
use idempotent::{CachedResponse, ExecutionOutcome, IdempotencyKey, IdempotencyStore, Metadata};

use crate::peer::{Peer, Runs};

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(7 * 86_400);

#[derive(Clone)]
pub struct Idempotent2 {
    store: ValkeyStore,
    runs: Runs,
}

impl Idempotent2 {
    pub async fn connect(url: &str) -> Self {
        let store = ValkeyStore::with_url(url).prefix("bench").try_build().await;
        Self { store: store.expect("the server answers"), runs: Runs::default() }
    }
}

impl Peer for Idempotent2 {
    async fn run(&self, number: u64) {
        let key = IdempotencyKey::new(format!("order-{number:014}")).expect("a valid key");
        let claim = self.store.claim(&key, LEASE).fingerprint("bench", b"");
        let outcome = claim.execute_or_replay(RETENTION, |_fence| async {
            self.runs.add();
            Ok(CachedResponse::new(200, Metadata::new(), Vec::new().into()))
        });
        let outcome = outcome.await.expect("the server answers");
        assert!(matches!(outcome, ExecutionOutcome::Executed(_) | ExecutionOutcome::Replayed(_)));
    }

    fn runs(&self) -> &Runs {
        &self.runs
    }
}
