//! The store under check: `idempotent_core::protocol`, possibly with one guard removed.
//!
//! A guard is removed by passing a record to the protocol that passes the guard. This file contains no other decisions.
use std::sync::Arc;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, OwnerToken, Record, Release, Settled, State,
    StateKind, Timestamp,
};

use crate::record::{CLOCK, Kept, LEASE, NOW, RETENTION, Scale, fingerprint};
use crate::state::{End, Message, RUNS, Request};
use crate::variant::{Releases, Second, Variant};

/// The answer of the store, and its write to the record.
#[derive(Debug)]
pub enum Answer {
    /// The answer to a claim.
    Claim(Claim),
    /// The answer to any other request.
    Settled(Settled),
}

/// A store with prepared requests, since a check makes millions of them.
#[derive(Clone, Debug)]
pub struct Store {
    variant: Variant,
    scale: Scale,
    claims: Vec<ClaimRequest>,
    helds: Vec<ClaimHandle>,
    completions: Vec<Completion>,
    releases: Vec<Release>,
}

/// The number of owners: 1 to 4 for the deliveries, then the owner of a probe.
const OWNERS: u8 = RUNS as u8 + 2;
const NUMBERS: usize = 128;

impl Store {
    /// Creates a store without the guards that the variant removes.
    #[must_use]
    pub fn new(variant: Variant) -> Self {
        let key = Key::from_parts("model", 1);
        let retention = if variant.store.forgets_numbers { std::time::Duration::ZERO } else { RETENTION };
        let error: Arc<str> = Arc::from("failed");
        let scale = Scale {
            retention,
            limited: variant.limit > 0,
            values: (0..OWNERS).map(|owner| Arc::from([owner])).collect(),
            error: error.clone(),
        };
        let claim = |owner: u8, sort: u8| ClaimRequest {
            key: key.clone(),
            owner: OwnerToken(owner.into()),
            lease: LEASE,
            fingerprint: fingerprint(if variant.second == Second::OtherPayload { sort + 1 } else { 0 }),
            max_attempts: variant.limit.into(),
            on_expiry: variant.on_expiry,
            retention,
            display: None,
        };
        let held = |owner: u8, number: usize| ClaimHandle {
            key: key.clone(),
            owner: OwnerToken(owner.into()),
            fencing: (number > 0 && variant.numbered).then_some(FencingToken(number as u64)),
            terms: None,
        };
        let release = |end: End| Release {
            kind: end.into(),
            delay: std::time::Duration::ZERO,
            retention: RETENTION,
            error: error.clone(),
        };
        Self {
            variant,
            claims: (0..OWNERS).flat_map(|owner| [claim(owner, 0), claim(owner, 1)]).collect(),
            helds: (0..OWNERS)
                .flat_map(|owner| (0..NUMBERS).map(move |n| (owner, n)))
                .map(|(o, n)| held(o, n))
                .collect(),
            completions: scale.values.iter().map(|value| done(value.clone())).collect(),
            releases: [End::Delete, End::Vacate, End::Refund, End::Fail, End::Bury].map(release).to_vec(),
            scale,
        }
    }

    /// Returns the answer to a request, and whether a record was written.
    #[must_use]
    pub fn apply(&self, kept: Option<Kept>, message: &Message) -> (Answer, Option<Kept>, bool) {
        let found = kept.map(|kept| self.scale.record(kept));
        let (answer, write) = self.decide(found, message);
        match write {
            Write::Keep => (answer, kept, false),
            Write::Put(record) => (answer, Some(self.scale.kept(&record)), true),
            Write::Delete => (answer, None, true),
        }
    }

    fn decide(&self, found: Option<Record>, message: &Message) -> (Answer, Write) {
        let owner = usize::from(message.run) + 1;
        let held = &self.helds[owner * NUMBERS + usize::from(message.number)];
        let done = &self.completions[owner];
        let old = self.variant.second == Second::OldWorker && message.sort == 1;
        let weak = &self.variant.store;
        let (settled, write) = match message.request {
            Request::Claim => {
                let (claim, write) = self.claim(found, &self.claims[owner * 2 + usize::from(message.sort)], message);
                return (Answer::Claim(claim), write);
            }
            Request::Complete if weak.completes_all || old => {
                protocol::complete(Some(&as_if_held(found, held)), &by_token(held), done, CLOCK)
            }
            Request::Complete => protocol::complete(found.as_ref(), held, done, CLOCK),
            Request::Release(end) => {
                let release = &self.releases[end as usize];
                let passes = match weak.releases {
                    _ if old => true,
                    Releases::Guarded => false,
                    Releases::AnyState => {
                        protocol::live(found.as_ref(), CLOCK).is_some_and(|record| is_owners(record, held))
                    }
                    Releases::Anybody => true,
                };
                match found {
                    Some(_) if passes => {
                        protocol::release(Some(&as_if_held(found, held)), &by_token(held), release, CLOCK)
                    }
                    found => protocol::release(found.as_ref(), held, release, CLOCK),
                }
            }
            Request::Renew => protocol::renew(found.as_ref(), held, LEASE, CLOCK),
        };
        (Answer::Settled(settled), write)
    }

    fn claim(&self, found: Option<Record>, request: &ClaimRequest, message: &Message) -> (Claim, Write) {
        let weak = &self.variant.store;
        if weak.never_expires {
            let found = found.map(|record| until(record, CLOCK + LEASE));
            return protocol::claim(found.as_ref(), request, CLOCK);
        }
        if weak.ignores_payload {
            return protocol::claim(found.as_ref(), &ClaimRequest { fingerprint: None, ..request.clone() }, CLOCK);
        }
        if self.variant.second == Second::FastClock && message.sort == 1 {
            let found = found.map(|record| until(record, CLOCK));
            return protocol::claim(found.as_ref(), request, CLOCK);
        }
        let (claim, write) = protocol::claim(found.as_ref(), request, CLOCK);
        match (claim, write) {
            // The fencing token depends only on the record, so it restarts with each record.
            (Claim::Acquired(grant), Write::Put(record)) if weak.forgets_numbers => {
                let fencing =
                    FencingToken(protocol::live(found.as_ref(), CLOCK).map_or(0, |found| found.fencing.0) + 1);
                (Claim::Acquired(idempotent_core::Grant { fencing, ..grant }), Write::Put(Record { fencing, ..record }))
            }
            other => other,
        }
    }

    /// Returns whether a purge may remove the record.
    #[must_use]
    pub fn is_purgeable(&self, kept: Kept) -> bool {
        protocol::purgeable(&self.scale.record(kept), CLOCK)
    }

    /// Returns the record after an operator has made the key claimable, if that was done.
    #[must_use]
    pub fn forget(&self, kept: Kept, force: bool) -> Option<Kept> {
        let record = self.scale.record(kept);
        match protocol::forget(Some(&record), record.fencing, force, RETENTION, CLOCK) {
            (Settled::Done, Write::Put(record)) => Some(self.scale.kept(&record)),
            _ => None,
        }
    }

    /// Returns the retention of a consuming record after its lease.
    #[must_use]
    pub fn retention(&self) -> std::time::Duration {
        self.scale.retention
    }

    /// Returns whether I13 holds, as far as one state can show it: after the end of the lease, another worker either
    /// gets the key or its final state. Undisturbed, it completes the key, and if it always fails, the limit ends the
    /// key.
    #[must_use]
    pub fn ends(&self, kept: Option<Kept>) -> bool {
        let probe = |request, number| Message { run: OWNERS - 2, sort: 0, number, request };
        let mut kept = kept.map(|kept| kept.expired(self.scale.retention));
        // A tick later, every fencing token is below the clock.
        if let Some(kept) = &mut kept {
            kept.number = kept.number.min(NOW - 1);
        }
        let mut attempts_left = self.variant.limit;
        loop {
            let (answer, granted, _) = self.apply(kept, &probe(Request::Claim, 0));
            let number = match answer {
                Answer::Claim(Claim::Acquired(grant)) => grant.fencing.0 as u8,
                Answer::Claim(Claim::Consumed(_) | Claim::Failed { .. } | Claim::Dead(_)) => return true,
                // Another payload than the stored one: a case for the operator, and final.
                Answer::Claim(Claim::Mismatch) => return granted.is_some_and(Kept::is_terminal),
                Answer::Claim(Claim::InFlight(_) | Claim::Delayed { .. }) | Answer::Settled(_) => return false,
            };
            let (answer, _, _) = self.apply(granted, &probe(Request::Complete, number));
            if !matches!(answer, Answer::Settled(Settled::Done)) {
                return false;
            }
            if self.variant.limit == 0 {
                return true;
            }
            let Some(left) = attempts_left.checked_sub(1) else { return false };
            attempts_left = left;
            let (_, released, _) = self.apply(granted, &probe(Request::Release(End::Vacate), number));
            kept = released;
        }
    }
}

fn done(value: Arc<[u8]>) -> Completion {
    Completion { value: Some(value), retain: RETENTION }
}

fn by_token(held: &ClaimHandle) -> ClaimHandle {
    ClaimHandle { fencing: None, ..held.clone() }
}

fn is_owners(record: &Record, held: &ClaimHandle) -> bool {
    match &record.state {
        State::Consuming { owner, .. } | State::Consumed { owner, .. } => held.is(*owner, record.fencing),
        _ => false,
    }
}

/// Returns the record as if this owner held it.
fn as_if_held(found: Option<Record>, held: &ClaimHandle) -> Record {
    let state = State::Consuming { owner: held.owner, until: CLOCK + LEASE, taken_over: None };
    let expires_at = CLOCK + LEASE + RETENTION;
    let blank = || Record {
        fencing: FencingToken(0),
        attempt: 1,
        fingerprint: None,
        state: State::Failed { error: Arc::from("") },
        expires_at,
        first_seen: CLOCK,
        updated_at: CLOCK,
        display: None,
    };
    Record { state, expires_at, ..found.unwrap_or_else(blank) }
}

/// Returns the record as another clock sees it: with its lease expiring at that time.
fn until(record: Record, until: Timestamp) -> Record {
    let expires_at = until + RETENTION;
    match record.state {
        State::Consuming { owner, taken_over, .. } if record.expires_at > CLOCK => {
            Record { state: State::Consuming { owner, until, taken_over }, expires_at, ..record }
        }
        _ => record,
    }
}

/// Returns whether the store rejected a settling request.
#[must_use]
pub fn is_lost(answer: &Answer) -> bool {
    matches!(answer, Answer::Settled(Settled::Lost { .. }))
}

/// Returns the kind of the record's state, as the protocol determines it.
#[must_use]
pub fn kind(kept: Option<Kept>) -> StateKind {
    use crate::record::Stage;
    match kept.filter(|kept| kept.remembered).map(|kept| kept.state) {
        None => StateKind::Absent,
        Some(Stage::Vacant { .. }) => StateKind::Vacant,
        Some(Stage::Consuming { .. }) => StateKind::Consuming,
        Some(Stage::Consumed { .. }) => StateKind::Consumed,
        Some(Stage::Failed) => StateKind::Failed,
        Some(Stage::Dead) => StateKind::Dead,
    }
}
