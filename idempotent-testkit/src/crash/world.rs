//! Two workers over one store, of which the first dies.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Executor, Key, MemoryStore, Record, Release, Settled, Store,
    StoreCapabilities, StoreError,
};
use tokio::task::yield_now;

use crate::{FaultStore, StoreAnswer, VirtualClock};

pub(super) struct World {
    pub(super) first: Worker,
    pub(super) second: Worker,
    clock: VirtualClock,
}

pub(super) struct Worker {
    pub(super) executor: Executor,
    pub(super) store: FaultStore,
}

impl World {
    pub(super) fn new() -> Self {
        let clock = VirtualClock::new();
        let memory = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let shared = FaultStore::new(memory, &clock);
        let worker = |name: &str| {
            let store = shared.worker(name);
            let builder = Executor::builder(Distant(store.clone())).clock(Arc::new(clock.clone()));
            #[allow(clippy::expect_used, reason = "no policy is set, and the defaults make sense")]
            let executor = builder.build().expect("an executor with defaults");
            Worker { executor, store }
        };
        Self { first: worker(FIRST), second: worker("second"), clock }
    }

    /// Returns whether any request was made, answered or not.
    pub(super) fn was_asked(&self) -> bool {
        !self.first.store.log().is_empty()
    }

    /// Waits until every lease of the first worker has expired. Returns whether there was one.
    pub(super) async fn outlive_leases(&self) -> bool {
        let longest = self.first.store.log().into_iter().filter_map(|call| lease_of(&call)).max();
        self.clock.advance(longest.unwrap_or_default()).await;
        longest.is_some()
    }
}

const FIRST: &str = "first";

fn lease_of(call: &crate::StoreCall) -> Option<Duration> {
    match &call.applied {
        Some(StoreAnswer::Claim(Claim::Acquired(grant))) if *call.worker == *FIRST => Some(grant.lease),
        _ => None,
    }
}

/// A remote store: each request waits once before it is applied, and once before its answer returns. The store offers
/// no capabilities, so that every request takes this path.
#[derive(Debug)]
struct Distant(FaultStore);

async fn there_and_back<T>(request: impl Future<Output = T>) -> T {
    yield_now().await;
    let answer = request.await;
    yield_now().await;
    answer
}

#[async_trait]
impl Store for Distant {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        there_and_back(self.0.claim(request)).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        there_and_back(self.0.renew(held, lease)).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        there_and_back(self.0.complete(held, completion)).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        there_and_back(self.0.release(held, release)).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        there_and_back(self.0.peek(key)).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}
