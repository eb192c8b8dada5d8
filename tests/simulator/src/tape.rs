//! The innermost wrapper: records the requests that the store applied, in the order of application.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, OnExpiry, Record, Release, Settled, Store,
    StoreCapabilities, StoreError, Watch, Watching,
};
use tokio::sync::Mutex;

use super::events::{Claimed, Recorder, What};
use super::lookalike::Disguise;
use idempotent_testkit::__private::{Answer, Answers, Ask, Carries, ask, store_that_carries};
use idempotent_testkit::VirtualClock;

#[derive(Clone, Debug)]
pub(super) struct Tape {
    inner: Arc<dyn Store>,
    recorder: Recorder,
    clock: VirtualClock,
    disguise: Disguise,
    /// The lock for a store that works on other threads: it gets one request at a time, so that the order is known. A
    /// store that decides without waiting needs no lock, and a faulty one must be able to show its fault.
    turn: Option<Arc<Mutex<()>>>,
}

impl Tape {
    pub(super) fn new(inner: Arc<dyn Store>, recorder: &Recorder, clock: &VirtualClock, in_turn: bool) -> Self {
        let turn = in_turn.then(Arc::default);
        Self { inner, recorder: recorder.clone(), clock: clock.clone(), disguise: Disguise::new(), turn }
    }

    /// Runs a purge.
    pub(super) async fn purge(&self, most: usize) {
        let _busy = self.clock.busy();
        let _turn = self.take_turn().await;
        if let Some(purge) = self.inner.capabilities().purge {
            let removed = purge.purge(most).await;
            self.recorder.record(0, What::Purged { failed: removed.is_err() });
        }
    }

    /// Returns the record that an operator sees.
    pub(super) async fn look(&self, key: &Key) -> Option<Record> {
        let _busy = self.clock.busy();
        let _turn = self.take_turn().await;
        self.inner.peek(&self.disguise.of(key)).await.ok().flatten()
    }

    /// Forgets a record as an operator, without force. Returns whether it was done.
    pub(super) async fn forget(&self, key: &Key, seen: FencingToken, retention: Duration) -> bool {
        let _busy = self.clock.busy();
        let _turn = self.take_turn().await;
        let Some(admin) = self.inner.capabilities().admin else { return false };
        let key = self.disguise.of(key);
        let done = matches!(admin.forget(&key, seen, false, retention).await, Ok(Settled::Done));
        if done {
            self.recorder.record(0, What::Forgotten { key: key.hash(), seen });
        }
        done
    }

    async fn take_turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        }
    }

    fn write(&self, ask: &Ask, answer: &Result<Answer, StoreError>) {
        let key = ask.key().hash();
        let what = match (ask, answer) {
            (_, Err(error)) => What::StoreError { key, kind: error.kind() },
            (Ask::Claim(request), Ok(Answer::Claim(answer))) => {
                let ClaimRequest { owner, lease, fingerprint, max_attempts, retention, on_expiry, .. } = *request;
                let parks = on_expiry == OnExpiry::Park;
                What::Claim(Claimed {
                    key,
                    owner,
                    lease,
                    retention,
                    max_attempts,
                    parks,
                    fingerprint,
                    answer: answer.clone(),
                })
            }
            (Ask::Renew(held, lease), Ok(Answer::Settled(answer))) => {
                What::Renew { key, owner: held.owner, number: held.fencing, lease: *lease, answer: *answer }
            }
            (Ask::Complete(held, done), Ok(Answer::Settled(answer))) => {
                What::Complete { key, owner: held.owner, number: held.fencing, done: done.clone(), answer: *answer }
            }
            (Ask::Release(held, release), Ok(Answer::Settled(answer))) => {
                let (owner, number) = (held.owner, held.fencing);
                let Release { kind: verdict, delay, retention, .. } = *release;
                What::Release { key, owner, number, verdict, delay, retention, answer: *answer }
            }
            // The store answers in the type of the operation.
            _ => return,
        };
        self.recorder.record(0, what);
    }
}

impl Carries for Tape {
    async fn carry(&self, asks: Vec<Ask>, together: bool) -> Answers {
        let _busy = self.clock.busy();
        let _turn = self.take_turn().await;
        let asks: Vec<_> = asks
            .into_iter()
            .map(|ask| {
                let key = self.disguise.of(ask.key());
                ask.at(&key)
            })
            .collect();
        if together {
            self.recorder.record(0, What::Together);
        }
        let answers = ask(&*self.inner, &asks, together).await;
        for (ask, answer) in asks.iter().zip(&answers) {
            self.write(ask, answer);
        }
        answers
    }
}
store_that_carries!(Tape);

impl Watch for Tape {
    fn watch(&self, key: &Key) -> Watching {
        match self.inner.capabilities().watch {
            Some(watch) => watch.watch(&self.disguise.of(key)),
            None => Box::pin(std::future::pending()),
        }
    }
}
