//! Stores that are wrong in one way each: what the checks are for.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::protocol::{self, Write};
use idempotent::{
    Abilities, Claim, ClaimRequest, Clock, Completion, Fencing, Held, InFlight, Key, Micros, OwnerToken, Record,
    Release, Settled, State, StateKind, Store, StoreError,
};
use idempotent_testkit::VirtualClock;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// Reads, and writes a moment later.
    ClaimInTwoSteps,
    /// A lease is over when half of it is.
    ExpiryEarly,
    ReleaseByAnybody,
    CompleteByAnybody,
    ConsumedNotKept,
    /// The second duplicate gets nothing.
    ResultLost,
    /// Counts from one for each new record.
    FencingRestarts,
    /// What failed or is dead may be claimed.
    NoEndIsFinal,
    FingerprintIgnored,
    ExpiryIgnored,
    RenewRefused,
}

#[derive(Debug)]
pub struct Flawed {
    flaw: Flaw,
    clock: VirtualClock,
    records: Mutex<HashMap<u128, Record>>,
}

impl Flawed {
    pub fn new(flaw: Flaw, clock: &VirtualClock) -> Arc<Self> {
        Arc::new(Self { flaw, clock: clock.clone(), records: Mutex::default() })
    }

    fn found(&self, key: &Key) -> Option<Record> {
        self.records.lock().unwrap().get(&key.hash()).cloned()
    }

    fn write<T>(&self, key: &Key, (answer, write): (T, Write)) -> Result<T, StoreError> {
        let mut records = self.records.lock().unwrap();
        match write {
            Write::Keep => {}
            Write::Put(record) => drop(records.insert(key.hash(), record)),
            Write::Delete => drop(records.remove(&key.hash())),
        }
        Ok(answer)
    }

    /// Whoever it is, it is the owner.
    fn anybody(&self, held: &Held) -> Held {
        let owner = match self.found(&held.key).map(|record| record.state) {
            Some(State::Consuming { owner, .. } | State::Consumed { owner, .. }) => owner,
            _ => held.owner,
        };
        Held::unanswered(held.key.clone(), owner)
    }

    fn restarted(&self, found: Option<&Record>, (answer, write): (Claim, Write)) -> (Claim, Write) {
        match (answer, write) {
            (Claim::Acquired(mut grant), Write::Put(mut record)) => {
                grant.fencing = Fencing(1 + found.map_or(0, |record| record.fencing.0));
                record.fencing = grant.fencing;
                (Claim::Acquired(grant), Write::Put(record))
            }
            other => other,
        }
    }
}

#[async_trait]
impl Store for Flawed {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let (mut request, mut now) = (request.clone(), self.clock.wall());
        let mut found = self.found(&request.key);
        let state = found.as_ref().map(|record| record.state.clone());
        match (self.flaw, state) {
            (Flaw::ClaimInTwoSteps, _) => {
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                }
            }
            (Flaw::ExpiryEarly, Some(State::Consuming { .. })) => now = now + request.lease / 2,
            (Flaw::NoEndIsFinal, Some(State::Failed { .. } | State::Dead { .. })) => {
                // Its number is remembered: this flaw is no other.
                found = found.map(|record| Record { expires_at: Micros(0), ..record });
            }
            (Flaw::FingerprintIgnored, _) => request.fingerprint = None,
            (Flaw::ExpiryIgnored, Some(State::Consuming { owner, .. })) if owner != request.owner => {
                return Ok(Claim::InFlight(InFlight::Leased { rest: Duration::from_secs(1) }));
            }
            _ => {}
        }
        let mut decided = protocol::claim(found.as_ref(), &request, now);
        if self.flaw == Flaw::FencingRestarts {
            decided = self.restarted(found.as_ref(), decided);
        }
        if let (Flaw::ResultLost, Claim::Consumed(_), Some(record)) = (self.flaw, &decided.0, &found) {
            let state = State::Consumed { owner: OwnerToken(0), value: None };
            decided.1 = Write::Put(Record { state, ..record.clone() });
        }
        self.write(&request.key, decided)
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        if self.flaw == Flaw::RenewRefused {
            return Ok(Settled::Lost { now: StateKind::Consuming });
        }
        self.write(&held.key, protocol::renew(self.found(&held.key).as_ref(), held, lease, self.clock.wall()))
    }

    async fn complete(&self, held: &Held, done: &Completion) -> Result<Settled, StoreError> {
        let owner = if self.flaw == Flaw::CompleteByAnybody { self.anybody(held) } else { held.clone() };
        let mut decided = protocol::complete(self.found(&held.key).as_ref(), &owner, done, self.clock.wall());
        if self.flaw == Flaw::ConsumedNotKept && decided.0 == Settled::Done {
            decided.1 = Write::Delete;
        }
        self.write(&held.key, decided)
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        let found = self.found(&held.key);
        let owner = if self.flaw == Flaw::ReleaseByAnybody { self.anybody(held) } else { held.clone() };
        self.write(&held.key, protocol::release(found.as_ref(), &owner, release, self.clock.wall()))
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.found(key))
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
    }
}
