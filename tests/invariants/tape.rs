//! The innermost wrapper: writes down what the store applied, with the request, in the order of application. The
//! fault store's log has the order of asking, and no requests.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent::{
    Abilities, Claim, ClaimRequest, Completion, Held, Key, Record, Release, Settled, Store, StoreError, StoreErrorKind,
    Watch, Watching,
};
use idempotent_testkit::VirtualClock;
use tokio::sync::Mutex;

use crate::history::{Claimed, Recorder, What};

/// Each call in a task of its own, so that it is written down though its caller may be gone.
#[derive(Clone, Debug)]
pub struct Tape {
    inner: Arc<dyn Store>,
    recorder: Recorder,
    clock: VirtualClock,
    turn: Arc<Mutex<()>>,
}

impl Tape {
    pub fn new(inner: Arc<dyn Store>, recorder: &Recorder, clock: &VirtualClock) -> Self {
        Self { inner, recorder: recorder.clone(), clock: clock.clone(), turn: Arc::default() }
    }

    async fn call<T, Fut>(
        &self,
        key: u128,
        ask: impl FnOnce(Arc<dyn Store>) -> Fut + Send + 'static,
        what: impl FnOnce(&T) -> What + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, StoreError>> + Send,
    {
        let tape = self.clone();
        let call = tokio::spawn(async move {
            let _busy = tape.clock.busy();
            // A store that works on other threads is asked for one thing at a time, so that the order is known. One
            // that decides without waiting needs no turns, and a flawed one is to show its flaw.
            let _turn = match tape.inner.abilities().batch {
                Some(_) => Some(tape.turn.lock().await),
                None => None,
            };
            let answer = ask(tape.inner.clone()).await;
            tape.recorder.record(
                0,
                match &answer {
                    Ok(answer) => what(answer),
                    Err(error) => What::StoreError { key, kind: error.kind() },
                },
            );
            answer
        });
        call.await.unwrap_or_else(|ended| Err(StoreError::new(StoreErrorKind::Ambiguous).because(ended.to_string())))
    }
}

#[async_trait]
impl Store for Tape {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let (asked, noted) = (request.clone(), request.clone());
        let what = move |answer: &Claim| {
            let ClaimRequest { key, owner, lease, fingerprint, max_attempts, memory, .. } = noted;
            let (key, answer) = (key.hash(), answer.clone());
            What::Claim(Claimed { key, owner, lease, memory, max_attempts, fingerprint, answer })
        };
        self.call(request.key.hash(), |store| async move { store.claim(&asked).await }, what).await
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        let (asked, key, owner, number) = (held.clone(), held.key.hash(), held.owner, held.fencing);
        let what = move |answer: &Settled| What::Renew { key, owner, number, lease, answer: *answer };
        self.call(key, move |store| async move { store.renew(&asked, lease).await }, what).await
    }

    async fn complete(&self, held: &Held, done: &Completion) -> Result<Settled, StoreError> {
        let (asked, key, owner, number) = (held.clone(), held.key.hash(), held.owner, held.fencing);
        let (sent, done) = (done.clone(), done.clone());
        let what = move |answer: &Settled| What::Complete { key, owner, number, done, answer: *answer };
        self.call(key, |store| async move { store.complete(&asked, &sent).await }, what).await
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        let (asked, key, owner, number) = (held.clone(), held.key.hash(), held.owner, held.fencing);
        let (sent, verdict, memory) = (release.clone(), release.verdict, release.memory);
        let what = move |answer: &Settled| What::Release { key, owner, number, verdict, memory, answer: *answer };
        self.call(key, |store| async move { store.release(&asked, &sent).await }, what).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }

    fn abilities(&self) -> Abilities<'_> {
        match self.inner.abilities().watch {
            Some(_) => Abilities::none().with_watch(self),
            None => Abilities::none(),
        }
    }
}

impl Watch for Tape {
    fn watch(&self, key: &Key) -> Watching {
        match self.inner.abilities().watch {
            Some(watch) => watch.watch(key),
            None => Box::pin(std::future::pending()),
        }
    }
}
