//! An exhaustive check of [`Cas`] over a backend without a clock, whose clients read clocks of their own.
//!
//! The code under check is that of the library. The adversary advances the true time, picks each reading of a clock within the
//! declared difference, so that clocks also go back, and applies each write any time after its client has read the record.
//!
//! The checks: no key is granted during the lease of another owner, or during the retention of a consumed key, both by the true
//! time, and fencing tokens rise. A [`Fault`] removes one rule, and then the check must fail.
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use idempotent_core::{
    Cas, CasBackend, Claim, ClaimHandle, ClaimRequest, Completion, Identity, Key, OnExpiry, OwnerToken, Record,
    Release, ReleaseKind, Scene, Settled, Store, StoreError, Timestamp, Version, VersionedRecord,
};
use stateright::{Checker, Model, Property};

/// The number of clients.
const CLIENTS: usize = 2;
/// The largest true time. All times are microseconds.
const LAST: u64 = 4;
const SKEW: u64 = 1;
const LEASE: u64 = 2;
const RETENTION: u64 = 2;
/// The true time of the first state on each clock.
const ORIGIN: u64 = 1_000;

/// A rule that is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Nothing is missing.
    None,
    /// The backend declares no difference.
    Undeclared,
    /// A claim writes the lease of its request.
    LeaseNotExtended,
    /// A renewal writes the lease of its request.
    RenewalNotExtended,
    /// A completion writes the retention of its request.
    RetentionNotExtended,
    /// The owner uses the lease with its extension.
    OwnerExtends,
    /// A record is removed when it expires, so its fencing token is forgotten.
    RemovesAtTheEnd,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Operation {
    Claim,
    Renew,
    Complete,
    Release,
}

/// The state of the key in the backend.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Row {
    record: Option<Vec<u8>>,
    version: Version,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Phase {
    Idle,
    /// The client holds the key until this time, as far as the client knows. The time may have passed.
    Holding {
        until: u64,
    },
    /// The client has read the record, and its write is on the way.
    Asked {
        operation: Operation,
        sent: u64,
        seen: Row,
        now: u64,
        until: u64,
    },
    Over,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct State {
    time: u64,
    row: Row,
    /// The version of the last write.
    writes: Version,
    clients: [Phase; CLIENTS],
    consumed_at: Option<u64>,
    highest: u64,
    /// The renewals that are left. Without a limit, there would be infinitely many versions.
    renewals: u8,
    violation: Option<&'static str>,
    seen: Seen,
}

/// Situations that must occur.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Seen {
    in_flight: bool,
    duplicate: bool,
    taken_over: bool,
    after_retention: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    Tick,
    /// Reads the record and the clock, whose time is ahead of the true time by this difference.
    Read(usize, Operation, u64),
    Write(usize),
}

struct SkewedClocks(Fault);

/// The result of a check.
#[derive(Debug)]
pub struct Outcome {
    /// The names of the violated properties.
    pub violated: Vec<&'static str>,
    /// The names of the situations that never occurred.
    pub unseen: Vec<&'static str>,
    /// The number of different states.
    pub states: usize,
}

const OVERLAP: &str = "no two owners at the same time";
const FORGOTTEN: &str = "no grant during the retention";
const FALLS: &str = "fencing tokens rise";
const SIGHTS: [&str; 4] = ["a key in flight", "a duplicate", "a takeover", "a grant after the retention"];

/// Checks the store without one rule, exhaustively.
///
/// # Panics
/// If the checker stopped early although no property was violated.
#[must_use]
pub fn check(fault: Fault) -> Outcome {
    let checker = SkewedClocks(fault).checker().spawn_bfs().join();
    let found = checker.discoveries();
    let violated: Vec<_> = [OVERLAP, FORGOTTEN, FALLS].into_iter().filter(|name| found.contains_key(name)).collect();
    assert!(!violated.is_empty() || checker.is_done(), "the check is complete");
    let unseen = SIGHTS.into_iter().filter(|sight| !found.contains_key(sight)).collect();
    Outcome { violated, unseen, states: checker.unique_state_count() }
}

impl Model for SkewedClocks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            time: 0,
            row: Row::default(),
            writes: 0,
            clients: [const { Phase::Idle }; CLIENTS],
            consumed_at: None,
            highest: 0,
            renewals: 1,
            violation: None,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.time < LAST {
            actions.push(Action::Tick);
        }
        for client in 0..CLIENTS {
            let operations: &[Operation] = match state.clients[client] {
                Phase::Idle => &[Operation::Claim],
                Phase::Holding { .. } if state.renewals > 0 => {
                    &[Operation::Renew, Operation::Complete, Operation::Release]
                }
                Phase::Holding { .. } => &[Operation::Complete, Operation::Release],
                Phase::Asked { .. } => {
                    actions.push(Action::Write(client));
                    &[]
                }
                Phase::Over => &[],
            };
            for operation in operations {
                actions.extend([0, SKEW].map(|ahead| Action::Read(client, *operation, ahead)));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.violation.is_some() {
            return None;
        }
        let mut next = last.clone();
        match action {
            Action::Tick => next.time += 1,
            Action::Read(client, operation, ahead) => next.read(client, operation, ahead),
            Action::Write(client) => self.write(&mut next, client),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(OVERLAP, |_, state: &State| state.violation != Some(OVERLAP)),
            Property::always(FORGOTTEN, |_, state: &State| state.violation != Some(FORGOTTEN)),
            Property::always(FALLS, |_, state: &State| state.violation != Some(FALLS)),
        ];
        if self.0 == Fault::None {
            properties.extend([
                Property::sometimes(SIGHTS[0], |_, state: &State| state.seen.in_flight),
                Property::sometimes(SIGHTS[1], |_, state: &State| state.seen.duplicate),
                Property::sometimes(SIGHTS[2], |_, state: &State| state.seen.taken_over),
                Property::sometimes(SIGHTS[3], |_, state: &State| state.seen.after_retention),
            ]);
        }
        properties
    }
}

impl State {
    fn read(&mut self, client: usize, operation: Operation, ahead: u64) {
        let until = match self.clients[client] {
            Phase::Holding { until } => until,
            _ => 0,
        };
        self.renewals -= u8::from(operation == Operation::Renew);
        let now = ORIGIN + self.time + ahead;
        let (sent, seen) = (self.time, self.row.clone());
        self.clients[client] = Phase::Asked { operation, sent, seen, now, until };
    }

    /// Checks a grant, and records the lease of its owner.
    fn grant(&mut self, client: usize, fencing: u64, until: u64) {
        let holds = |other: usize| match self.clients[other] {
            Phase::Holding { until } | Phase::Asked { until, .. } => until > self.time,
            Phase::Idle | Phase::Over => false,
        };
        if (0..CLIENTS).any(|other| other != client && holds(other)) {
            self.violation = Some(OVERLAP);
        } else if self.consumed_at.is_some_and(|at| self.time < at + RETENTION) {
            self.violation = Some(FORGOTTEN);
        } else if fencing <= self.highest {
            self.violation = Some(FALLS);
        }
        self.seen.after_retention |= self.consumed_at.is_some();
        self.consumed_at = None;
        self.highest = fencing;
        self.clients[client] = Phase::Holding { until };
    }
}

impl SkewedClocks {
    /// Runs the operation of the library with the record that the client has read.
    fn write(&self, state: &mut State, client: usize) {
        let now_at_retry = ORIGIN + state.time;
        let Phase::Asked { operation, sent, seen, now, .. } = state.clients[client].clone() else { return };
        let backend = Backend {
            fault: self.0,
            reads: Mutex::new(Some((seen, now))),
            now_at_retry,
            row: Mutex::new((state.row.clone(), state.writes)),
        };
        let store = Cas(backend);
        let cut = |fault, duration: u64| match self.0 == fault {
            true => Duration::from_micros(duration - SKEW),
            false => Duration::from_micros(duration),
        };
        let owner = OwnerToken(client as u128 + 1);
        let held = ClaimHandle::unanswered(key(), owner);
        let settled = match operation {
            Operation::Claim => {
                let request = request(owner, cut(Fault::LeaseNotExtended, LEASE));
                match now_or_panic(store.claim(&request)) {
                    Claim::Acquired(grant) => {
                        state.seen.taken_over |= grant.taken_over.is_some();
                        let extension = if self.0 == Fault::OwnerExtends { SKEW } else { 0 };
                        state.grant(client, grant.fencing.0, sent + LEASE + extension);
                    }
                    other => {
                        state.seen.in_flight |= matches!(other, Claim::InFlight(_));
                        state.seen.duplicate |= matches!(other, Claim::Consumed(_));
                        state.clients[client] = Phase::Over;
                    }
                }
                None
            }
            Operation::Renew => Some(now_or_panic(store.renew(&held, cut(Fault::RenewalNotExtended, LEASE)))),
            Operation::Complete => {
                let done = Completion { value: None, retain: cut(Fault::RetentionNotExtended, RETENTION) };
                Some(now_or_panic(store.complete(&held, &done)))
            }
            Operation::Release => {
                let (kind, delay, retention) = (ReleaseKind::Delete, Duration::ZERO, Duration::ZERO);
                Some(now_or_panic(store.release(&held, &Release { kind, delay, retention, error: "failed".into() })))
            }
        };
        if let Some(settled) = settled {
            state.clients[client] = match (settled, operation) {
                (Settled::Done, Operation::Renew) => Phase::Holding { until: sent + LEASE },
                _ => Phase::Over,
            };
            if settled == Settled::Done && operation == Operation::Complete {
                // A retention counts from the request, like a lease.
                state.consumed_at = Some(sent);
            }
        }
        (state.row, state.writes) = store.0.row.into_inner().unwrap_or_else(PoisonError::into_inner);
    }
}

/// The backend of one operation.
#[derive(Debug)]
struct Backend {
    fault: Fault,
    /// The row and the time of the first read. Later reads see the current row.
    reads: Mutex<Option<(Row, u64)>>,
    now_at_retry: u64,
    row: Mutex<(Row, Version)>,
}

#[async_trait]
impl CasBackend for Backend {
    async fn read(&self, _: &Key) -> Result<VersionedRecord, StoreError> {
        let first = self.reads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (row, now) = first
            .unwrap_or_else(|| (self.row.lock().unwrap_or_else(PoisonError::into_inner).0.clone(), self.now_at_retry));
        let record = row.record.as_deref().map(Record::from_bytes).transpose()?;
        let removes = self.fault == Fault::RemovesAtTheEnd;
        let record = record.filter(|record| !removes || record.expires_at > Timestamp(now));
        Ok(VersionedRecord { version: if record.is_some() { row.version } else { 0 }, record, now: Timestamp(now) })
    }

    async fn swap(&self, _: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        let (row, writes) = &mut *self.row.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = self.fault == Fault::RemovesAtTheEnd && seen == 0;
        if row.version != seen && !removed {
            return Ok(false);
        }
        *writes += 1;
        *row = Row { record: next.map(Record::to_bytes), version: *writes };
        Ok(true)
    }

    fn max_skew(&self) -> Duration {
        Duration::from_micros(if self.fault == Fault::Undeclared { 0 } else { SKEW })
    }
}

fn key() -> Key {
    static KEY: LazyLock<Key> =
        LazyLock::new(|| Identity::new(Scene::Mq, "model", "k").key("model").expect("a short key"));
    KEY.clone()
}

fn request(owner: OwnerToken, lease: Duration) -> ClaimRequest {
    // The record outlives its lease, so that a takeover is known.
    let (fingerprint, display, retention) = (None, None, Duration::from_micros(LAST));
    ClaimRequest {
        key: key(),
        owner,
        lease,
        fingerprint,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention,
        display,
    }
}

/// Returns the answer of a store that never waits.
fn now_or_panic<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    answer.now_or_never().expect("the backend answers at once").expect("the backend does not fail")
}
