//! A store with scripted answers.
mod script;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, InFlight, Key, Record, Release, Settled, Store, StoreCapabilities,
    StoreError,
};

use self::script::Script;
pub(super) use self::script::{Attending, Audience};
use crate::clock::require_one_thread;
use crate::{FaultStore, VirtualClock};

/// A store that answers claims from a script first, and from the wrapped store after that. It has the capabilities of
/// the wrapped store.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    inner: FaultStore,
    clock: VirtualClock,
    script: Arc<Script>,
}

impl Scripted {
    pub(super) fn new(inner: FaultStore, clock: VirtualClock) -> Self {
        Self { inner, clock, script: Arc::default() }
    }

    #[track_caller]
    pub(super) fn script(&self, answer: Claim) {
        self.script.push(answer, Location::caller());
    }

    pub(super) fn audience(&self) -> Arc<Audience> {
        Arc::new(Audience(self.script.clone()))
    }

    pub(super) fn inner(&self) -> &FaultStore {
        &self.inner
    }

    fn heard<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.as_ref().is_err_and(StoreError::is_worth_a_retry) {
            self.pass_time();
        }
        answer
    }

    /// Advances the time past the executor's pause before a retry, which is at most a second.
    fn pass_time(&self) {
        // The check is here and not in the task below, whose panic would be lost.
        require_one_thread();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let clock = self.clock.clone();
            runtime.spawn(async move { clock.advance(LONGEST_PAUSE).await });
        }
    }
}

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[async_trait]
impl Store for Scripted {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        match self.script.next() {
            Some(busy @ Claim::InFlight(InFlight::Busy)) => {
                self.pass_time();
                Ok(busy)
            }
            Some(answer) => Ok(answer),
            None => self.heard(self.inner.claim(request).await),
        }
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.heard(self.inner.complete(held, completion).await)
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.heard(self.inner.release(held, release).await)
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.inner.capabilities()
    }
}
