//! `protocol.rs` over a map, with one bug at most.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Abilities, Claim, ClaimRequest, Clock, Completion, Fencing, Held, Key, Micros, OwnerToken, Record, Release,
    Settled, State, Store, StoreError,
};
use idempotent_testkit::VirtualClock;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bug {
    /// The control: a mutant without a bug keeps every law.
    None,
    /// Reads, lets others in, writes.
    NonAtomicClaim,
    /// Completes for whoever asks.
    UnconditionalComplete,
    /// Takes the token for the grant: the number is not looked at.
    TokenWithoutNumber,
    /// Releases by token, without a look at the state.
    ReleaseUndoesConsumed,
    /// The fencing number ends with the record.
    FencingStartsAnew,
    /// The same owner asking again is counted again.
    RepetitionCounts,
    /// A lease may be taken over a ms early.
    EarlyTakeover,
    /// A renewal may shorten.
    RenewalShortens,
    /// The fingerprint is compared before the state.
    FingerprintFirst,
    /// Peek shows what is past its time.
    PeekShowsExpired,
    /// Keys are compared as text, without case.
    CaseFolded,
    /// The last result stands, not the first.
    LastResultStands,
    /// An empty result is kept as none.
    EmptyIsNone,
    /// A batch answers in another order.
    BatchInDisorder,
    /// Browsing lists what is past its time.
    BrowseShowsExpired,
    /// A page begins with the last entry of the one before.
    BrowseRepeats,
    /// A purge takes a lease's end for the record's.
    PurgeTakesOrphans,
    /// A purge does not look at how many it may.
    PurgeWithoutBound,
    /// Forgets without a look at the number.
    ForgetAnyNumber,
    /// Forgets a held key without being forced.
    ForgetHeld,
    /// Wakes at completion only.
    ReleaseWakesNobody,
}

#[derive(Debug)]
pub(crate) struct Mutant {
    bug: Bug,
    pub(crate) clock: VirtualClock,
    pub(crate) rows: Mutex<BTreeMap<String, (Key, Record)>>,
    pub(crate) bell: Arc<Notify>,
    /// Held over a whole step: the control is atomic.
    turn: Mutex<()>,
}

impl Mutant {
    pub(crate) fn new(bug: Bug, clock: VirtualClock) -> Self {
        Self { bug, clock, rows: Mutex::default(), bell: Arc::default(), turn: Mutex::default() }
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    pub(crate) fn place(&self, key: &Key) -> String {
        if self.has(Bug::CaseFolded) { key.as_str().to_lowercase() } else { key.as_str().to_owned() }
    }

    pub(crate) fn write(&self, key: &Key, write: Write) {
        let mut rows = self.rows.lock().unwrap();
        match write {
            Write::Keep => {}
            Write::Put(record) => drop(rows.insert(self.place(key), (key.clone(), record))),
            Write::Delete => drop(rows.remove(&self.place(key))),
        }
    }

    pub(crate) fn found(&self, key: &Key) -> Option<Record> {
        self.rows.lock().unwrap().get(&self.place(key)).map(|row| row.1.clone())
    }

    fn held(&self, held: &Held) -> Held {
        let fencing = held.fencing.filter(|_| !self.has(Bug::TokenWithoutNumber));
        Held { fencing, ..held.clone() }
    }

    fn decide_claim(&self, found: Option<&Record>, ask: &ClaimRequest, mut now: Micros) -> (Claim, Write) {
        let mut ask = ask.clone();
        if let Some(record) = found {
            if self.has(Bug::FingerprintFirst) && record.fingerprint.is_some() && record.fingerprint != ask.fingerprint
            {
                return (Claim::Mismatch, Write::Keep);
            }
            if self.has(Bug::RepetitionCounts)
                && matches!(record.state, State::Consuming { owner, .. } if owner == ask.owner)
            {
                ask.owner = OwnerToken(!ask.owner.0);
                now = record.expires_at;
            }
            if self.has(Bug::EarlyTakeover) {
                now = now + Duration::from_millis(1);
            }
        }
        let (claim, mut write) = protocol::claim(found, &ask, now);
        if let (Bug::FencingStartsAnew, Write::Put(record)) = (self.bug, &mut write) {
            record.fencing = Fencing(record.attempt.into());
            if let Claim::Acquired(mut grant) = claim {
                grant.fencing = record.fencing;
                return (Claim::Acquired(grant), write);
            }
        }
        (claim, write)
    }
}

#[async_trait]
impl Store for Mutant {
    async fn claim(&self, ask: &ClaimRequest) -> Result<Claim, StoreError> {
        let decide = |found: Option<&Record>| self.decide_claim(found, ask, self.clock.wall());
        if self.has(Bug::NonAtomicClaim) {
            let found = self.found(&ask.key);
            tokio::task::yield_now().await;
            let (claim, write) = decide(found.as_ref());
            self.write(&ask.key, write);
            return Ok(claim);
        }
        let _turn = self.turn.lock().unwrap();
        let mut rows = self.rows.lock().unwrap();
        let (claim, write) = decide(rows.get(&self.place(&ask.key)).map(|row| &row.1));
        if let Write::Put(record) = write {
            rows.insert(self.place(&ask.key), (ask.key.clone(), record));
        }
        Ok(claim)
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        let _turn = self.turn.lock().unwrap();
        let (now, held) = (self.clock.wall(), self.held(held));
        let (settled, mut write) = protocol::renew(self.found(&held.key).as_ref(), &held, lease, now);
        if let (Bug::RenewalShortens, Write::Put(Record { state: State::Consuming { until, .. }, .. })) =
            (self.bug, &mut write)
        {
            *until = now + lease;
        }
        self.write(&held.key, write);
        Ok(settled)
    }

    async fn complete(&self, held: &Held, done: &Completion) -> Result<Settled, StoreError> {
        let _turn = self.turn.lock().unwrap();
        let (mut found, mut held, mut done) = (self.found(&held.key), self.held(held), done.clone());
        if self.has(Bug::EmptyIsNone) {
            done.value = done.value.filter(|value| !value.is_empty());
        }
        if let Some(record) = &mut found {
            match &record.state {
                State::Consuming { owner, .. } if self.has(Bug::UnconditionalComplete) => {
                    (held.owner, held.fencing) = (*owner, None);
                }
                State::Consumed { owner, .. } if self.has(Bug::LastResultStands) => {
                    record.state = State::Consuming { owner: *owner, until: Micros::FOREVER, taken_over: None };
                }
                _ => {}
            }
        }
        let (settled, write) = protocol::complete(found.as_ref(), &held, &done, self.clock.wall());
        self.write(&held.key, write);
        self.bell.notify_waiters();
        Ok(settled)
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        let _turn = self.turn.lock().unwrap();
        let mut found = self.found(&held.key);
        if let (Bug::ReleaseUndoesConsumed, Some(record)) = (self.bug, &mut found)
            && let State::Consumed { owner, .. } = &record.state
        {
            record.state = State::Consuming { owner: *owner, until: Micros::FOREVER, taken_over: None };
        }
        let (settled, write) = protocol::release(found.as_ref(), &self.held(held), release, self.clock.wall());
        self.write(&held.key, write);
        if !self.has(Bug::ReleaseWakesNobody) {
            self.bell.notify_waiters();
        }
        Ok(settled)
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let (found, now) = (self.found(key), self.clock.wall());
        Ok(found.filter(|record| self.has(Bug::PeekShowsExpired) || protocol::live(Some(record), now).is_some()))
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities::none().with_batch(self).with_watch(self).with_browse(self).with_purge(self).with_admin(self)
    }
}
