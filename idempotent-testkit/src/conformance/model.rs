//! A model of a correct store: `protocol.rs` over a map.
use std::collections::HashMap;
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Dead, FencingToken, InFlight, Key, Record, Release, Settled, State,
    Timestamp,
};

/// A model that never purges: an expired record counts as absent anyway, and its fencing token must not matter.
#[derive(Debug, Default)]
pub(crate) struct Model(HashMap<u128, Record>);

impl Model {
    pub(crate) fn claim(&mut self, ask: &ClaimRequest, now: Timestamp) -> Claim {
        self.step(&ask.key, |found| protocol::claim(found, ask, now))
    }

    pub(crate) fn renew(&mut self, held: &ClaimHandle, lease: Duration, now: Timestamp) -> Settled {
        self.step(&held.key, |found| protocol::renew(found, held, lease, now))
    }

    pub(crate) fn complete(&mut self, held: &ClaimHandle, done: &Completion, now: Timestamp) -> Settled {
        self.step(&held.key, |found| protocol::complete(found, held, done, now))
    }

    pub(crate) fn release(&mut self, held: &ClaimHandle, release: &Release, now: Timestamp) -> Settled {
        self.step(&held.key, |found| protocol::release(found, held, release, now))
    }

    pub(crate) fn forget(
        &mut self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
        now: Timestamp,
    ) -> Settled {
        self.step(key, |found| protocol::forget(found, expected, force, retention, now))
    }

    pub(crate) fn peek(&self, key: &Key, now: Timestamp) -> Option<&Record> {
        protocol::live(self.0.get(&key.hash()), now)
    }

    fn step<T>(&mut self, key: &Key, decide: impl FnOnce(Option<&Record>) -> (T, Write)) -> T {
        let (answer, write) = decide(self.0.get(&key.hash()));
        match write {
            Write::Keep => {}
            Write::Put(record) => drop(self.0.insert(key.hash(), record)),
            Write::Delete => drop(self.0.remove(&key.hash())),
        }
        answer
    }
}

/// A form of answers that is comparable between two clocks: all periods are hours or zero, and a fencing token is
/// reduced to its rank.
#[derive(Debug, Default)]
pub(crate) struct Shape(Vec<FencingToken>);

impl Shape {
    fn rank(&mut self, fencing: FencingToken) -> FencingToken {
        let rank = self.0.iter().position(|seen| *seen == fencing).unwrap_or_else(|| {
            self.0.push(fencing);
            self.0.len() - 1
        });
        FencingToken(rank as u64)
    }

    pub(crate) fn claim(&mut self, claim: Claim) -> Claim {
        match claim {
            Claim::Acquired(mut grant) => {
                grant.taken_over = grant.taken_over.map(|fencing| self.rank(fencing));
                grant.fencing = self.rank(grant.fencing);
                Claim::Acquired(grant)
            }
            Claim::InFlight(InFlight::Leased { .. }) => Claim::InFlight(InFlight::Busy),
            Claim::Consumed(mut consumed) => {
                consumed.fencing = self.rank(consumed.fencing);
                Claim::Consumed(consumed)
            }
            Claim::Dead(dead) => Claim::Dead(Dead { fencing: self.rank(dead.fencing), ..dead }),
            Claim::Delayed { .. } => Claim::Delayed { rest: Duration::ZERO },
            other => other,
        }
    }

    pub(crate) fn record(&mut self, record: Record) -> Record {
        let fencing = self.rank(record.fencing);
        let state = match record.state {
            State::Vacant { error, taken_over, .. } => State::Vacant { not_before: Timestamp(0), error, taken_over },
            State::Consuming { owner, taken_over, .. } => {
                let taken_over = taken_over.map(|fencing| self.rank(fencing));
                State::Consuming { owner, until: Timestamp(0), taken_over }
            }
            other => other,
        };
        let none = Timestamp(0);
        Record { fencing, state, expires_at: none, first_seen: none, updated_at: none, ..record }
    }
}
