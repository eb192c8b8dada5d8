//! A store that records its requests and answers.
use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, OwnerToken, Record, Release, Settled, Store,
    StoreCapabilities, StoreError, StoreErrorKind, Watch, Watching,
};

use super::store_calls::{Answer, Answers, Ask, Carries, ask};
use super::{Kind, Label, Line};

/// The destination of a [`Recording`].
///
/// A killed process writes nothing more, so each call is recorded before it is made.
pub trait Journal: fmt::Debug + Send + Sync + 'static {
    /// Returns the time in ns, by the clock that all writers share.
    fn now(&self) -> u64;

    /// Records a call before it is made. `unheard` is the line for the case that the call never ends, so that its
    /// result is unknown. The returned number identifies the call.
    fn begin(&self, unheard: &Line) -> u64;

    /// Replaces the first line of a call by its answer. `None` removes the line, because the call was certainly not
    /// applied.
    fn end(&self, call: u64, heard: Option<&Line>);

    /// Records an event that is not a call.
    fn event(&self, line: &Line);
}

/// A store that forwards all calls, and records a history of them.
///
/// A call that is dropped has no end: its result is unknown. Capabilities: watch and batch, if the store has them.
#[derive(Clone, Debug)]
pub struct Recording {
    inner: Arc<dyn Store>,
    journal: Arc<dyn Journal>,
    worker: Label,
    owners: Arc<Mutex<HashMap<(Key, FencingToken), OwnerToken>>>,
}

impl Recording {
    /// Creates a store that forwards the calls of `worker` to `store`, and records them in `journal`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, journal: Arc<dyn Journal>, worker: impl Into<Label>) -> Self {
        Self { inner: store, journal, worker: worker.into(), owners: Arc::default() }
    }

    /// Returns the owner of a grant until the grant ends. Handlers know their fencing token, but effects are recorded
    /// by owner token.
    #[must_use]
    pub fn owner(&self, key: &Key, fencing: FencingToken) -> Option<OwnerToken> {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(&(key.clone(), fencing)).copied()
    }

    fn line(&self, ask: &Ask, t0: u64, answer: &Result<Answer, StoreError>) -> Option<Line> {
        let line = Line { t0, ..Line::new(self.journal.now(), self.worker.clone(), Kind::ClaimUnknown) };
        ask.line(line, answer)
    }

    fn learn(&self, ask: &Ask, answer: &Result<Answer, StoreError>) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        match (ask, answer) {
            (Ask::Claim(request), Ok(Answer::Claim(Claim::Acquired(grant)))) => {
                owners.insert((request.key.clone(), grant.fencing), request.owner);
            }
            (Ask::Complete(held, _) | Ask::Release(held, _), Ok(Answer::Settled(_))) => {
                owners.retain(|(key, _), owner| (key, *owner) != (&held.key, held.owner));
            }
            _ => {}
        }
    }
}

impl Carries for Recording {
    async fn carry(&self, asks: Vec<Ask>, together: bool) -> Answers {
        let unheard = Err(StoreError::new(StoreErrorKind::Ambiguous));
        let t0 = self.journal.now();
        let begin = |ask: &Ask| self.line(ask, t0, &unheard).map(|line| self.journal.begin(&line));
        let calls: Vec<_> = asks.iter().map(begin).collect();
        let answers = ask(&*self.inner, &asks, together).await;
        for ((ask, answer), call) in asks.iter().zip(&answers).zip(calls) {
            if let Some(call) = call {
                self.journal.end(call, self.line(ask, t0, answer).as_ref());
            }
            self.learn(ask, answer);
        }
        answers
    }
}
crate::__store_that_carries!(Recording);

impl Watch for Recording {
    fn watch(&self, key: &Key) -> Watching {
        match self.inner.capabilities().watch {
            Some(watch) => watch.watch(key),
            None => Box::pin(pending()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::Future;
    use std::task::{Context, Waker};

    use idempotent_core::{MemoryStore, OnExpiry};

    use super::*;
    use crate::{FOREVER, FaultStore, StoreOperation, VirtualClock};

    /// The lines by call. A call without an end keeps its first line.
    #[derive(Debug, Default)]
    struct Memory(Mutex<(u64, BTreeMap<u64, Option<Line>>)>);

    impl Journal for Memory {
        fn now(&self) -> u64 {
            let mut memory = self.0.lock().unwrap();
            memory.0 += 1;
            memory.0
        }

        fn begin(&self, unheard: &Line) -> u64 {
            let mut memory = self.0.lock().unwrap();
            let call = memory.1.len() as u64;
            memory.1.insert(call, Some(unheard.clone()));
            call
        }

        fn end(&self, call: u64, heard: Option<&Line>) {
            self.0.lock().unwrap().1.insert(call, heard.cloned());
        }

        fn event(&self, line: &Line) {
            self.begin(line);
        }
    }

    impl Memory {
        fn told(&self) -> Vec<Kind> {
            self.0.lock().unwrap().1.values().flatten().map(|line| line.event).collect()
        }
    }

    fn request(owner: u128) -> ClaimRequest {
        ClaimRequest {
            key: Key::from_parts("orders", 7),
            owner: OwnerToken(owner),
            lease: Duration::from_secs(1),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: Duration::from_secs(60),
            display: None,
        }
    }

    fn world() -> (Recording, Arc<Memory>, FaultStore) {
        let clock = VirtualClock::new();
        let store = FaultStore::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build(), &clock);
        let journal = Arc::new(Memory::default());
        (Recording::new(Arc::new(store.clone()), journal.clone(), 1), journal, store)
    }

    #[tokio::test]
    async fn an_answer_replaces_the_beginning_of_its_operation() {
        let (recording, journal, _) = world();
        let Claim::Acquired(grant) = recording.claim(&request(1)).await.unwrap() else { unreachable!() };
        assert!(matches!(recording.claim(&request(2)).await.unwrap(), Claim::InFlight(_)));
        assert_eq!(journal.told(), [Kind::ClaimWon, Kind::ClaimInflight]);
        assert_eq!(recording.owner(&request(1).key, grant.fencing), Some(OwnerToken(1)));
    }

    #[tokio::test]
    async fn a_call_that_was_surely_not_applied_is_no_line_and_one_that_was_perhaps_is() {
        let (recording, journal, faults) = world();
        faults.fail_before(StoreOperation::Claim, 1);
        assert!(recording.claim(&request(1)).await.is_err());
        assert_eq!(journal.told(), []);
        faults.lose_reply(StoreOperation::Claim, 1);
        assert!(recording.claim(&request(1)).await.is_err());
        assert_eq!(journal.told(), [Kind::ClaimUnknown]);
    }

    #[tokio::test]
    async fn a_call_that_was_abandoned_has_an_unknown_outcome() {
        let (recording, journal, faults) = world();
        faults.hang(StoreOperation::Claim, FOREVER);
        let ask = request(1);
        let mut claim = Box::pin(recording.claim(&ask));
        assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(claim);
        assert_eq!(journal.told(), [Kind::ClaimUnknown]);
    }
}
