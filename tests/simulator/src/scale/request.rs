//! Requests and how a master applies them. The decisions about records are those of
//! [`protocol`](idempotent_core::protocol); only the packed form has rules of its own.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Consumed, FencingToken, OnExpiry, OwnerToken, Record, Release,
    ReleaseKind, Settled, State, Timestamp,
};

use super::bug::Bug;
use super::cluster::{BEGIN, Cluster, SlotMove};
use super::journal::Change;
use super::packed::{Header, MemberPlace};
use super::scenario::{EXACT, Form, LEASE, Layout, Retention};

/// A key with its place in the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPlace {
    pub(super) hash: u128,
    pub(super) slot: u32,
}

/// A request about a key.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) place: KeyPlace,
    pub(super) owner: OwnerToken,
    pub(super) layout: Layout,
    pub(super) retention: Retention,
    /// The header of the slot that the client knows.
    pub(super) header: Option<Arc<Header>>,
    /// The difference between the client's clock and the virtual time.
    pub(super) client_clock: i64,
    pub(super) what: Asked,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    Claim,
    Complete(FencingToken),
    Release(FencingToken),
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Claim(Claim),
    /// The result of a completion or a release.
    Settled {
        settled: Settled,
        /// False if the request repeats one that was applied before.
        is_written: bool,
        /// True if the bucket of the key is full.
        is_full: bool,
    },
    /// The header of the client is not the stored one, or the open segment has to be closed. Nothing was written.
    Header(Option<Arc<Header>>),
    /// The slot is moving. Nothing was written.
    TryAgain,
    /// The master is down. Nothing was written.
    Down,
}

impl Cluster {
    /// Applies a request.
    pub(super) fn apply(&mut self, request: &Request, now: u64) -> Reply {
        let slot = request.place.slot;
        if !self.masters[self.owner(slot)].is_up {
            return Reply::Down;
        }
        let server = self.clock(slot, now);
        let time = match self.bug {
            Some(Bug::ClientClock) => (BEGIN + now).saturating_add_signed(request.client_clock),
            _ => server,
        };
        match (request.layout, self.form) {
            (Layout::Previous, _) => self.apply_to_record(request, now, Timestamp(time)),
            (Layout::Current, Form::Record) => match self.previous(request, Timestamp(time)) {
                Some(reply) => reply,
                None => self.apply_to_record(request, now, Timestamp(time)),
            },
            (Layout::Current, Form::Packed) => self.apply_to_packed(request, now, server, time),
        }
    }

    /// Returns the answer that the record of the previous namespace gives to a claim, if it gives one.
    fn previous(&self, request: &Request, now: Timestamp) -> Option<Reply> {
        if request.what != Asked::Claim || self.bug == Some(Bug::NoPreviousLookup) {
            return None;
        }
        let record = self.slots[request.place.slot as usize].previous.get(&request.place.hash);
        let (answer, _) = protocol::claim(protocol::live(record, now).map(Some)?, &self.claim_of(request), now);
        matches!(answer, Claim::Consumed(_) | Claim::InFlight(_)).then_some(Reply::Claim(answer))
    }

    fn apply_to_record(&mut self, request: &Request, now: u64, time: Timestamp) -> Reply {
        let slot = &self.slots[request.place.slot as usize];
        let is_moved = slot.moving.is_some_and(|moving| moved(moving, now) > part_of(request.place.hash));
        let map = if request.layout == Layout::Previous { &slot.previous } else { &slot.records };
        let found = map.get(&request.place.hash).filter(|record| match self.bug {
            Some(Bug::MovedKeyIsNew) => !is_moved,
            Some(Bug::FutureIgnored) => record.first_seen <= time,
            _ => true,
        });
        let (reply, write) = self.decide(found, request, request.retention.retain, time);
        self.write(request, now, write);
        reply
    }

    /// Decides as the product does.
    fn decide(&self, found: Option<&Record>, request: &Request, retain: u64, now: Timestamp) -> (Reply, Write) {
        match request.what {
            Asked::Claim => {
                let (answer, write) = protocol::claim(found, &self.claim_of(request), now);
                (Reply::Claim(answer), write)
            }
            Asked::Complete(fencing) => {
                let early = self.bug == Some(Bug::RetentionFromClaim);
                let from_claim = found.filter(|_| early).map_or(0, |record| now.0.saturating_sub(record.first_seen.0));
                let done = Completion { value: None, retain: Duration::from_micros(retain.saturating_sub(from_claim)) };
                let (settled, write) = protocol::complete(found, &self.handle(request, fencing), &done, now);
                (settled_by(settled, &write), write)
            }
            Asked::Release(fencing) => {
                let release = Release {
                    kind: ReleaseKind::Delete,
                    delay: Duration::ZERO,
                    retention: Duration::from_secs(3_600),
                    error: Arc::from("failed"),
                };
                let (settled, write) = protocol::release(found, &self.handle(request, fencing), &release, now);
                (settled_by(settled, &write), write)
            }
        }
    }

    fn claim_of(&self, request: &Request) -> ClaimRequest {
        ClaimRequest {
            key: self.key.clone(),
            owner: request.owner,
            lease: Duration::from_micros(LEASE),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: Duration::from_secs(3_600),
            display: None,
        }
    }

    fn handle(&self, request: &Request, fencing: FencingToken) -> ClaimHandle {
        ClaimHandle { key: self.key.clone(), owner: request.owner, fencing: Some(fencing), terms: None }
    }

    fn write(&mut self, request: &Request, now: u64, write: Write) {
        let KeyPlace { hash, slot } = request.place;
        let data = &mut self.slots[slot as usize];
        let map = if request.layout == Layout::Previous { &mut data.previous } else { &mut data.records };
        let before = match write {
            Write::Keep => return,
            Write::Put(record) => map.insert(hash, record),
            Write::Delete => map.remove(&hash),
        };
        self.journal.note(now, slot, data.owner, || Change::Record { hash, before });
    }

    fn apply_to_packed(&mut self, request: &Request, now: u64, server: u64, time: u64) -> Reply {
        let KeyPlace { hash, slot } = request.place;
        let data = &self.slots[slot as usize];
        let moved = match data.moving {
            Some(moving) if self.bug == Some(Bug::UndeclaredKeys) => moved(moving, now),
            Some(_) => return Reply::TryAgain,
            None => 0.0,
        };
        let header = data.packed.header(server);
        let is_complete = matches!(request.what, Asked::Complete(_));
        let is_overdue = is_complete && header.is_some_and(|header| header.is_overdue(server));
        // Both sides often share the header, so the comparison is cheap.
        let is_known = header.zip(request.header.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b) || a == b);
        if !is_known || is_overdue {
            return Reply::Header(header.cloned());
        }
        if let Some(reply) = self.previous(request, Timestamp(time)) {
            return reply;
        }
        let member = MemberPlace::of(hash, self.bug);
        let found = self.slots[slot as usize].records.get(&hash).filter(|_| part_of(hash) >= moved);
        if request.what == Asked::Claim && self.slots[slot as usize].packed.is_marked(member, server, moved, self.bug) {
            let exact = protocol::live(found, Timestamp(time));
            return Reply::Claim(match exact {
                Some(Record { fencing, state: State::Consumed { value, .. }, .. }) => {
                    Claim::Consumed(Consumed { fencing: *fencing, value: value.clone() })
                }
                // The member alone proves the completion. The fencing token is not kept.
                _ => Claim::Consumed(Consumed { fencing: FencingToken(0), value: None }),
            });
        }
        // The exact record must outlast the time at which the clock passes its number.
        let exact = found.map_or(EXACT, |record| EXACT.max((record.fencing.0 + 1).saturating_sub(time)));
        let (reply, write) = self.decide(found, request, exact, Timestamp(time));
        self.write(request, now, write);
        match reply {
            Reply::Settled { settled: Settled::Done, is_written: true, .. } if is_complete => {
                let data = &mut self.slots[slot as usize];
                let is_full = data.packed.add(member, request.retention, server);
                self.journal.note(now, slot, data.owner, || Change::Member { hash, member });
                let is_full = is_full && self.bug != Some(Bug::NeverRollsEarly);
                Reply::Settled { settled: Settled::Done, is_written: true, is_full }
            }
            other => other,
        }
    }
}

fn settled_by(settled: Settled, write: &Write) -> Reply {
    Reply::Settled { settled, is_written: *write != Write::Keep, is_full: false }
}

/// Returns the part of a slot's keys that have moved.
fn moved(moving: SlotMove, now: u64) -> f64 {
    ((now - moving.began) as f64 / moving.takes as f64).min(1.0)
}

/// Returns the position of a key among the keys of its slot, from 0 to 1, in the order of the move.
fn part_of(hash: u128) -> f64 {
    ((hash >> 98) as u64 & 0xffff) as f64 / 65_536.0
}
