//! A store wrapper without capabilities.
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities};
use idempotent::{Key, Store, StoreError};

/// A store with the required operations only.
#[derive(Debug)]
pub(crate) struct Bare<S>(pub(crate) S);

#[async_trait]
impl<S: Store> Store for Bare<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.0.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.0.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        self.0.complete(held, done).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.0.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}
