//! Batches over a durable store that answers several requests at once.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    Batch, Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities,
};
use idempotent::{Key, MemoryStore, Store, StoreError};
use idempotent_testkit::VirtualClock;

use super::*;
use crate::without_capabilities::Bare;

/// A store that counts the requests of its batches.
#[derive(Clone, Debug)]
struct Batched {
    inner: MemoryStore,
    requests: Arc<AtomicUsize>,
}

#[async_trait]
impl Store for Batched {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.inner.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        self.inner.complete(held, done).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.inner.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.inner.capabilities().with_batch(self)
    }
}

#[async_trait]
impl Batch for Batched {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        self.requests.fetch_add(requests.len(), SeqCst);
        self.inner.claim_all(requests).await
    }
    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        self.inner.renew_all(held).await
    }
    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        self.inner.complete_all(done).await
    }
}

#[tokio::test]
async fn the_fast_tier_answers_its_part_of_a_batch() {
    let durable = Batched { inner: MemoryStore::new(), requests: Arc::default() };
    let fast = MemoryTier::new();
    let store = TieredStore::new(durable.clone(), fast.clone());
    let batch = store.capabilities().batch.unwrap();
    let keys = ["a", "b", "c"];
    let ask_all = |owner| keys.map(|key| ask(key, owner));

    let claims = batch.claim_all(&ask_all(1)).await;
    assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::Acquired(_)))), "{claims:?}");
    let held_keys = keys.map(|key| (held(key, 1), secs(60)));
    assert_eq!(batch.renew_all(&held_keys).await.into_iter().flatten().collect::<Vec<_>>(), [Settled::Done; 3]);
    let completions = [(held("a", 1), done(b"a", 60)), (held("b", 1), done(b"b", 60))];
    assert_eq!(batch.complete_all(&completions).await.into_iter().flatten().collect::<Vec<_>>(), [Settled::Done; 2]);
    assert_eq!((durable.requests.load(SeqCst), store.counts().remembered), (3, 2));

    let claim_again = async || {
        let claims = batch.claim_all(&ask_all(2)).await;
        assert_consumed(claims[0].as_ref().unwrap(), b"a");
        assert_consumed(claims[1].as_ref().unwrap(), b"b");
        assert!(matches!(claims[2], Ok(Claim::InFlight(_))), "{claims:?}");
        (durable.requests.load(SeqCst), store.counts().hits, store.counts().repaired)
    };
    // The fast tier knows the first two, so the durable store gets the third one only.
    assert_eq!(claim_again().await, (4, 2, 0));
    fast.flush();
    assert_eq!(claim_again().await, (7, 2, 2), "all from the durable store");
    assert_eq!(claim_again().await, (8, 4, 2), "known again");
}

/// A caller that ignores the capabilities gets one answer for each request.
#[tokio::test]
async fn a_durable_store_without_batches_refuses_each_request() {
    let store = TieredStore::new(Bare(MemoryStore::new()), MemoryTier::new());
    assert!(store.capabilities().batch.is_none());
    let claims = Batch::claim_all(&store, &[ask("a", 1), ask("b", 1)]).await;
    assert_eq!(claims.iter().filter(|claim| claim.is_err()).count(), 2);
    assert_eq!(Batch::renew_all(&store, &[(held("a", 1), secs(1))]).await.len(), 1);
    assert_eq!(Batch::complete_all(&store, &[(held("a", 1), done(b"", 1))]).await.len(), 1);
}

#[tokio::test]
async fn a_purge_reports_the_records_that_the_durable_store_has_removed() {
    let clock = VirtualClock::new();
    let durable = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    let store = TieredStore::builder(durable, MemoryTier::new()).clock(Arc::new(clock.clone())).build();
    store.claim(&ask("a", 1)).await.unwrap();
    store.complete(&held("a", 1), &done(b"a", 1)).await.unwrap();
    clock.advance(secs(7_200)).await;
    let all = store.capabilities();
    assert_eq!(all.purge.unwrap().purge(10).await.unwrap(), 1);
}
