//! Renewals, completions and releases, changed by a bug.
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    ClaimHandle, Completion, FencingToken, Record, Release, ReleaseKind, Settled, State, StateKind, Timestamp,
};

use crate::mutants::Bug;

pub(in crate::mutants) fn renew(
    bug: Option<Bug>,
    found: Option<&Record>,
    held: &ClaimHandle,
    lease: Duration,
    now: Timestamp,
) -> (Settled, Write) {
    let held = &as_seen(bug, held);
    if let Some(lost) = late(bug, found, now) {
        return lost;
    }
    if bug == Some(Bug::PutAfterVanish) && protocol::live(found, now).is_none() {
        let state = State::Consuming { owner: held.owner, until: now + lease, taken_over: None };
        return (Settled::Done, Write::Put(made_up(held, state, now + lease, now)));
    }
    let holder = match (bug, found.map(|record| &record.state)) {
        (Some(Bug::RenewWithoutOwner), Some(State::Consuming { owner, .. })) => {
            &ClaimHandle::unanswered(held.key.clone(), *owner)
        }
        _ => held,
    };
    let (settled, mut write) = protocol::renew(found, holder, lease, now);
    if let Write::Put(record) = &mut write
        && let State::Consuming { until, .. } = &mut record.state
    {
        match bug {
            Some(Bug::RenewalShortens) => *until = now + lease,
            Some(Bug::RenewalForgetsMemory) => record.expires_at = *until,
            Some(Bug::RenewalDoesNothing) => write = Write::Keep,
            _ => {}
        }
    }
    (settled, write)
}

pub(in crate::mutants) fn complete(
    bug: Option<Bug>,
    found: Option<&Record>,
    held: &ClaimHandle,
    done: &Completion,
    now: Timestamp,
) -> (Settled, Write) {
    let held = &as_seen(bug, held);
    if let Some(lost) = late(bug, found, now) {
        return lost;
    }
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
            return protocol::complete(Some(&undone(record)), held, &done, now);
        }
        (Some(Bug::RetentionIsTheLease), Some(Record { state: State::Consuming { until, .. }, .. })) => {
            done.retain = done.retain.min(*until - now);
        }
        _ => {}
    }
    protocol::complete(found, held, &done, now)
}

pub(in crate::mutants) fn release(
    bug: Option<Bug>,
    found: Option<&Record>,
    held: &ClaimHandle,
    release: &Release,
    now: Timestamp,
) -> (Settled, Write) {
    let held = &as_seen(bug, held);
    if let Some(lost) = late(bug, found, now) {
        return lost;
    }
    let mut release = release.clone();
    match bug {
        Some(Bug::UnconditionalDelete) if release.kind == ReleaseKind::Delete => {
            return (Settled::Done, Write::Delete);
        }
        Some(Bug::RefundCounts) if release.kind == ReleaseKind::Refund => release.kind = ReleaseKind::Vacate,
        Some(Bug::RefundLeavesTrace) if release.kind == ReleaseKind::Refund => {
            release.delay = release.delay.max(Duration::from_micros(1));
        }
        _ => {}
    }
    let undone = found.map(undone);
    let found = if bug == Some(Bug::TokenWithoutState) { undone.as_ref() } else { found };
    let (mut settled, mut write) = protocol::release(found, held, &release, now);
    match (bug, release.kind, &mut write) {
        (Some(Bug::AttemptCountedAtRelease), ReleaseKind::Vacate, Write::Put(record)) => record.attempt += 1,
        (Some(Bug::RefundHidesTakeover), ReleaseKind::Refund, Write::Put(record)) => {
            if let State::Vacant { taken_over, .. } = &mut record.state {
                *taken_over = None;
            }
        }
        (Some(Bug::DeletionForgetsNumber), ReleaseKind::Delete, Write::Put(_)) => write = Write::Delete,
        (Some(Bug::RepeatedReleaseIsDone), ..)
            if !matches!(settled, Settled::Lost { now: StateKind::Consuming | StateKind::Consumed }) =>
        {
            settled = Settled::Done;
        }
        _ => {}
    }
    (settled, write)
}

fn late(bug: Option<Bug>, found: Option<&Record>, now: Timestamp) -> Option<(Settled, Write)> {
    let record = protocol::live(found, now).filter(|_| bug == Some(Bug::LateOwnerRefused))?;
    match record.state {
        State::Consuming { until, .. } if until <= now => {
            Some((Settled::Lost { now: StateKind::Consuming }, Write::Keep))
        }
        _ => None,
    }
}

/// Returns the handle as the store sees it.
fn as_seen(bug: Option<Bug>, held: &ClaimHandle) -> ClaimHandle {
    let fencing = held.fencing.filter(|_| bug != Some(Bug::TokenWithoutNumber));
    ClaimHandle { fencing, ..held.clone() }
}

/// Returns a consumed record as if its owner still held it, and any other record unchanged.
fn undone(record: &Record) -> Record {
    let mut record = record.clone();
    if let State::Consumed { owner, .. } = record.state {
        record.state = State::Consuming { owner, until: Timestamp::FOREVER, taken_over: None };
    }
    record
}

/// Returns an invented record for a caller without one.
fn made_up(held: &ClaimHandle, state: State, expires_at: Timestamp, now: Timestamp) -> Record {
    Record {
        fencing: held.fencing.unwrap_or(FencingToken(now.0)),
        attempt: 1,
        fingerprint: None,
        state,
        expires_at,
        first_seen: now,
        updated_at: now,
        display: None,
    }
}
