//! `protocol.rs`, bent by a bug.
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimRequest, Completion, Fencing, Held, InFlight, Micros, OwnerToken, Record, Release, Settled, State,
    Verdict,
};

use super::Bug;

pub(super) fn claim(bug: Option<Bug>, found: Option<&Record>, ask: &ClaimRequest, now: Micros) -> (Claim, Write) {
    let mut bent = ask.clone();
    let mut at = now;
    if let Some(record) = protocol::live(found, now) {
        let until = match record.state {
            State::Consuming { owner, until, .. } => Some((owner == ask.owner, until)),
            _ => None,
        };
        match (bug, until) {
            (Some(Bug::FingerprintFirst), _)
                if record.fingerprint.is_some() && record.fingerprint != ask.fingerprint =>
            {
                return (Claim::Mismatch, Write::Keep);
            }
            (Some(Bug::RepetitionIsInFlight), Some((true, until))) => return in_flight(until, now),
            (Some(Bug::ExpiryIgnored), Some((false, until))) if until <= now => return in_flight(until, now),
            (Some(Bug::RepetitionCounts), Some((true, until))) => {
                (bent.owner, at) = (OwnerToken(!ask.owner.0), until.max(now));
            }
            (Some(Bug::EarlyTakeover), _) => at = now + Duration::from_millis(1),
            _ => {}
        }
    }
    let (mut claim, mut write) = protocol::claim(found, &bent, at);
    if let (Claim::Acquired(grant), Write::Put(record)) = (&mut claim, &mut write) {
        match bug {
            Some(Bug::FencingStartsAnew) => {
                record.fencing = Fencing(record.attempt.into());
                grant.fencing = record.fencing;
            }
            Some(Bug::AttemptCountedAtRelease) => record.attempt -= 1,
            Some(Bug::RepetitionCounts) => {
                if let State::Consuming { owner, .. } = &mut record.state {
                    *owner = ask.owner;
                }
            }
            _ => {}
        }
    } else if let (Some(Bug::AttemptCountedAtRelease), Claim::Acquired(grant)) = (bug, &mut claim) {
        grant.attempt += 1;
    }
    (claim, write)
}

fn in_flight(until: Micros, now: Micros) -> (Claim, Write) {
    (Claim::InFlight(InFlight::Leased { rest: until - now }), Write::Keep)
}

pub(super) fn renew(
    bug: Option<Bug>,
    found: Option<&Record>,
    held: &Held,
    lease: Duration,
    now: Micros,
) -> (Settled, Write) {
    let held = &as_seen(bug, held);
    if bug == Some(Bug::PutAfterVanish) && protocol::live(found, now).is_none() {
        let state = State::Consuming { owner: held.owner, until: now + lease, taken_over: None };
        return (Settled::Done, Write::Put(made_up(held, state, now + lease, now)));
    }
    let holder = match (bug, found.map(|record| &record.state)) {
        (Some(Bug::RenewWithoutOwner), Some(State::Consuming { owner, .. })) => {
            &Held::unanswered(held.key.clone(), *owner)
        }
        _ => held,
    };
    let (settled, mut write) = protocol::renew(found, holder, lease, now);
    if let (Some(Bug::RenewalShortens), Write::Put(Record { state: State::Consuming { until, .. }, .. })) =
        (bug, &mut write)
    {
        *until = now + lease;
    }
    (settled, write)
}

pub(super) fn complete(
    bug: Option<Bug>,
    found: Option<&Record>,
    held: &Held,
    done: &Completion,
    now: Micros,
) -> (Settled, Write) {
    let held = &as_seen(bug, held);
    let mut done = done.clone();
    let live = protocol::live(found, now);
    let consumed = |value| State::Consumed { owner: held.owner, value };
    match (bug, live) {
        (Some(Bug::EmptyIsNone), _) => done.value = done.value.filter(|value| !value.is_empty()),
        (Some(Bug::PutAfterVanish | Bug::UnconditionalFlip), None) => {
            return (Settled::Done, Write::Put(made_up(held, consumed(done.value), now + done.retain, now)));
        }
        (Some(Bug::UnconditionalFlip), Some(record)) => {
            let (state, expires_at) = (consumed(done.value), now + done.retain);
            return (Settled::Done, Write::Put(Record { state, expires_at, updated_at: now, ..record.clone() }));
        }
        (Some(Bug::LastResultStands), Some(record)) => {
            return protocol::complete(undone(record).as_ref(), held, &done, now);
        }
        _ => {}
    }
    protocol::complete(found, held, &done, now)
}

pub(super) fn release(
    bug: Option<Bug>,
    found: Option<&Record>,
    held: &Held,
    release: &Release,
    now: Micros,
) -> (Settled, Write) {
    let held = &as_seen(bug, held);
    let undone = found.and_then(undone);
    let found = if bug == Some(Bug::TokenWithoutState) { undone.as_ref() } else { found };
    if bug == Some(Bug::UnconditionalDelete) && release.verdict == Verdict::Delete {
        return (Settled::Done, Write::Delete);
    }
    let (settled, mut write) = protocol::release(found, held, release, now);
    if let (Some(Bug::AttemptCountedAtRelease), Verdict::Vacate, Write::Put(record)) =
        (bug, release.verdict, &mut write)
    {
        record.attempt += 1;
    }
    (settled, write)
}

/// What the store makes of the proof.
fn as_seen(bug: Option<Bug>, held: &Held) -> Held {
    let fencing = held.fencing.filter(|_| bug != Some(Bug::TokenWithoutNumber));
    Held { fencing, ..held.clone() }
}

/// A consumed record as if it were still held by its owner; any other as it is.
fn undone(record: &Record) -> Option<Record> {
    let mut record = record.clone();
    if let State::Consumed { owner, .. } = record.state {
        record.state = State::Consuming { owner, until: Micros::FOREVER, taken_over: None };
    }
    Some(record)
}

/// A record of what the caller says, where none is.
fn made_up(held: &Held, state: State, expires_at: Micros, now: Micros) -> Record {
    Record {
        fencing: held.fencing.unwrap_or(Fencing(now.0)),
        attempt: 1,
        fingerprint: None,
        state,
        expires_at,
        first_seen: now,
        updated_at: now,
        display: None,
    }
}

/// What becomes of a record on its way into the map.
pub(super) fn kept(bug: Option<Bug>, mut record: Record) -> Record {
    if bug == Some(Bug::SecondsRounded) {
        let cut = |time: &mut Micros| time.0 -= time.0 % 1_000_000;
        cut(&mut record.expires_at);
        match &mut record.state {
            State::Consuming { until, .. } => cut(until),
            State::Vacant { not_before, .. } => cut(not_before),
            _ => {}
        }
    }
    record
}
