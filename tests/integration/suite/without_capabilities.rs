//! A store wrapper without capabilities.
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    Batch, Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities,
};
use idempotent::{Key, Store, StoreError};

/// Everything a store must do, and no more.
#[derive(Debug)]
pub(crate) struct Bare<S> {
    store: S,
    batches: bool,
}

impl<S> Bare<S> {
    #[allow(dead_code, reason = "not in each test that has it")]
    pub(crate) const fn of(store: S) -> Self {
        Self { store, batches: false }
    }

    /// One that takes batches, and never answers them.
    #[allow(dead_code, reason = "not in each test that has it")]
    pub(crate) const fn hanging_on_batches(store: S) -> Self {
        Self { store, batches: true }
    }
}

#[async_trait]
impl<S: Store> Store for Bare<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.store.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.store.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        self.store.complete(held, done).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.store.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        if self.batches { StoreCapabilities::none().with_batch(self) } else { StoreCapabilities::none() }
    }
}

#[async_trait]
impl<S: Store> Batch for Bare<S> {
    async fn claim_all(&self, _: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        std::future::pending().await
    }
    async fn renew_all(&self, _: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        std::future::pending().await
    }
    async fn complete_all(&self, _: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        std::future::pending().await
    }
}
