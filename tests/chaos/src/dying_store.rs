//! A store whose process dies in its calls.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities};
use idempotent::{Key, Store, StoreError};

use crate::dice::Dice;
use crate::wire::Dies;

/// Kills this process as the kernel would: nothing of it runs on.
pub(crate) fn die() -> ! {
    let own = rustix::process::getpid();
    // A process may always kill itself.
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    std::process::abort()
}

/// A store that forwards each call, and kills the process during selected calls.
///
/// Capabilities: watch, if the inner store has it. There is no batch, since all requests of a batch would share a
/// kill.
#[derive(Debug)]
pub(crate) struct DyingStore {
    inner: Arc<dyn Store>,
    dice: Dice,
    doomed: Mutex<HashMap<Key, Dies>>,
    /// Wrong on purpose: keys are not given back, and it says they were.
    keeps: bool,
}

impl DyingStore {
    pub(crate) fn new(inner: Arc<dyn Store>, dice: Dice, keeps: bool) -> Self {
        Self { inner, dice, doomed: Mutex::default(), keeps }
    }

    /// The next call of that kind for this key is the process's last one.
    pub(crate) fn doom(&self, key: Key, at: Dies) {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).insert(key, at);
    }

    /// Executes a call, or kills the process: before the request is sent, before the response arrives, or directly
    /// after the call.
    async fn survive<T>(&self, key: &Key, at: Dies, call: impl Future<Output = T> + Send) -> T {
        if self.doomed.lock().unwrap_or_else(PoisonError::into_inner).get(key) != Some(&at) {
            return call.await;
        }
        tokio::select! {
            biased;
            _ = call => {}
            () = tokio::time::sleep(Duration::from_millis(self.dice.below(3))) => {}
        }
        die()
    }
}

#[async_trait]
impl Store for DyingStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.survive(&request.key, Dies::AtClaim, self.inner.claim(request)).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.survive(&held.key, Dies::AtComplete, self.inner.complete(held, completion)).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        if self.keeps {
            return Ok(Settled::Done);
        }
        self.inner.release(held, release).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        let inner = self.inner.capabilities();
        inner.watch.map_or_else(StoreCapabilities::none, |watch| StoreCapabilities::none().with_watch(watch))
    }
}
