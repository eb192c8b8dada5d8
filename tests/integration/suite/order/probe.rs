//! A store that keeps the claims, and whose order tables another process may change before each write.
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use idempotent::store::{
    Claim, ClaimHandle, ClaimRequest, Completion, OrderStore, Record, Release, Settled, StoreCapabilities,
    StoredOrderTable,
};
use idempotent::{Key, MemoryStore, Store, StoreError};

use super::*;

#[derive(Debug, Default)]
pub(super) struct ProbeStore {
    pub(super) store: MemoryStore,
    pub(super) claims: Mutex<Vec<ClaimRequest>>,
    /// The number of writes of order tables. With `None`, the tables are those of the memory store.
    pub(super) contended: Option<AtomicUsize>,
}

#[async_trait]
impl Store for ProbeStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.claims.lock().unwrap().push(request.clone());
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
        match self.contended {
            Some(_) => StoreCapabilities::none().with_order(self),
            None => self.store.capabilities(),
        }
    }
}

#[async_trait]
impl OrderStore for ProbeStore {
    async fn load(&self, key: &Key) -> Result<StoredOrderTable, StoreError> {
        self.store.capabilities().order.unwrap().load(key).await
    }

    async fn compare_and_swap(&self, _: &Key, _: Option<&[u8]>, _: &[u8], _: Duration) -> Result<bool, StoreError> {
        self.contended.as_ref().unwrap().fetch_add(1, SeqCst);
        Ok(false)
    }
}
