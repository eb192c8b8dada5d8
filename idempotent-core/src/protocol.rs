//! The decisions of a store as pure functions of (record, request, now), without clock or I/O.
//!
//! The memory store, [`Cas`](crate::store::Cas) and the test kit call these functions. A store that decides in SQL or
//! in a script reimplements them, and the conformance tests compare the results.
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Claim, ClaimHandle, ClaimRequest, Completion, Consumed, Dead, FencingToken, Grant, InFlight, OnExpiry, OwnerToken,
    Record, Release, ReleaseKind, Settled, State, StateKind, StepRecord, Timestamp,
};

/// The write that a store must apply to a record. Complete by definition: a store applies each of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Leave the record unchanged.
    Keep,
    /// Write this record.
    Put(Record),
    /// Delete the record.
    Delete,
}

/// The error recorded for a key that ran out of attempts because its owners crashed or hung.
pub const CRASHED: &str = "crashed: the last run let its lease run out";
/// The error recorded for a key that was parked instead of being taken over.
pub const PARKED: &str = "parked: the lease of the last run expired, and the policy forbids a takeover";

/// Returns the record unless its `expires_at` has passed. An expired record counts as absent.
#[must_use]
pub fn live(found: Option<&Record>, now: Timestamp) -> Option<&Record> {
    found.filter(|record| record.expires_at > now)
}

/// Claims the key, or returns the reason why it cannot be claimed.
///
/// The state is checked before the fingerprint. The fingerprint is compared only if the record has a current run or a
/// settled one. A vacant or expired record takes the new fingerprint.
#[must_use]
pub fn claim(found: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> (Claim, Write) {
    let Some(record) = live(found, now) else { return grant(found, None, request, now, None) };
    let exhausted = request.max_attempts > 0 && record.attempt >= request.max_attempts;
    let answer = match &record.state {
        // The answer to this claim was lost: repeat the answer and do not count another attempt.
        State::Consuming { owner, taken_over, .. } if *owner == request.owner => Claim::Acquired(Grant {
            fencing: record.fencing,
            attempt: record.attempt,
            lease: request.lease,
            taken_over: *taken_over,
        }),
        State::Consuming { until, .. } if *until <= now => {
            return match request.on_expiry {
                OnExpiry::Park => bury(record, &Arc::from(PARKED), request.retention, now),
                OnExpiry::Takeover if exhausted => bury(record, &Arc::from(CRASHED), request.retention, now),
                OnExpiry::Takeover => grant(found, Some(record), request, now, Some(record.fencing)),
            };
        }
        State::Vacant { not_before, .. } if *not_before > now => Claim::Delayed { rest: *not_before - now },
        State::Vacant { error, .. } if exhausted => return bury(record, error, request.retention, now),
        State::Vacant { taken_over, .. } => return grant(found, Some(record), request, now, *taken_over),
        State::Consuming { .. } | State::Consumed { .. } | State::Failed { .. } | State::Dead { .. }
            if fingerprint_differs(record, request) =>
        {
            Claim::Mismatch
        }
        State::Consuming { until, .. } => Claim::InFlight(InFlight::Leased { rest: *until - now }),
        State::Consumed { value, .. } => Claim::Consumed(Consumed { fencing: record.fencing, value: value.clone() }),
        State::Failed { error } => Claim::Failed { error: error.clone() },
        State::Dead { error } => Claim::Dead(dead(record, error)),
    };
    (answer, Write::Keep)
}

/// Extends a lease and never shortens it. An owner may renew after the end of its lease if no other owner took over.
#[must_use]
pub fn renew(found: Option<&Record>, held: &ClaimHandle, lease: Duration, now: Timestamp) -> (Settled, Write) {
    update_owned(found, held, now, |record, until, taken_over| {
        let later = until.max(now + lease);
        // The memory after the lease keeps its length.
        let expires_at = later + (record.expires_at - until);
        let state = State::Consuming { owner: held.owner, until: later, taken_over };
        // `updated_at` must not go back with a clock that was set back, or the lease would look longer than the
        // maximum.
        Write::Put(Record { state, expires_at, updated_at: now.max(record.updated_at), ..record.clone() })
    })
}

/// Turns a consuming record into a consumed one.
///
/// A completion that its owner repeats succeeds, and the first result is kept. If the owner's token was [not
/// kept](OwnerToken::NOT_KEPT), the fencing number identifies the owner. A request without a fencing number is then
/// refused.
#[must_use]
pub fn complete(found: Option<&Record>, held: &ClaimHandle, done: &Completion, now: Timestamp) -> (Settled, Write) {
    if let Some(Record { fencing, state: State::Consumed { owner, .. }, .. }) = live(found, now)
        && was_completed_by(held, *owner, *fencing)
    {
        return (Settled::Done, Write::Keep);
    }
    update_owned(found, held, now, |record, _, _| {
        let state = State::Consumed { owner: held.owner, value: done.value.clone() };
        let expires_at = now + done.retain;
        Write::Put(Record { state, expires_at, updated_at: now, display: None, ..record.clone() })
    })
}

/// Ends an attempt that did not succeed, as its verdict demands.
#[must_use]
pub fn release(found: Option<&Record>, held: &ClaimHandle, release: &Release, now: Timestamp) -> (Settled, Write) {
    update_owned(found, held, now, |record, _, taken_over| {
        let error = || release.error.clone();
        let kept = |state, expires_at| Write::Put(Record { state, expires_at, updated_at: now, ..record.clone() });
        let vacant = |attempt, taken_over| {
            let not_before = now + release.delay;
            let state = State::Vacant { not_before, error: error(), taken_over };
            let expires_at = not_before + release.retention;
            Write::Put(Record { state, attempt, expires_at, updated_at: now, display: None, ..record.clone() })
        };
        match release.kind {
            ReleaseKind::Delete => delete(record, error(), now),
            ReleaseKind::Vacate => vacant(record.attempt, None),
            ReleaseKind::Refund if record.attempt <= 1 && taken_over.is_none() && release.delay.is_zero() => {
                delete(record, error(), now)
            }
            // The run never began, so the next run still has to know about the takeover.
            ReleaseKind::Refund => vacant(record.attempt.saturating_sub(1), taken_over),
            ReleaseKind::MarkFailed => kept(State::Failed { error: error() }, now + release.retention),
            ReleaseKind::MarkDead => kept(State::Dead { error: error() }, now + release.retention),
        }
    })
}

/// Makes a settled key claimable again for an operator, and a consuming key only with `force`.
///
/// `expected` must be the fencing number that the operator saw.
#[must_use]
pub fn forget(
    found: Option<&Record>,
    expected: FencingToken,
    force: bool,
    retention: Duration,
    now: Timestamp,
) -> (Settled, Write) {
    let lost = |now| (Settled::Lost { now }, Write::Keep);
    let Some(record) = live(found, now) else { return lost(StateKind::Absent) };
    let kind = record.state.kind();
    let allowed = match kind {
        StateKind::Consumed | StateKind::Failed | StateKind::Dead => true,
        StateKind::Consuming => force,
        StateKind::Absent | StateKind::Vacant => false,
    };
    if !allowed || record.fencing != expected {
        return lost(kind);
    }
    let state = State::Vacant { not_before: now, error: Arc::from("made claimable by an operator"), taken_over: None };
    let expires_at = now + retention;
    // The record begins again and keeps only the fencing number.
    let (fencing, attempt, fingerprint, display) = (record.fencing, 0, None, None);
    let vacant = Record { fencing, attempt, fingerprint, state, expires_at, first_seen: now, updated_at: now, display };
    (Settled::Done, Write::Put(vacant))
}

/// Returns whether a record may be purged: it has expired, and its fencing number cannot be issued again.
#[must_use]
pub fn purgeable(record: &Record, now: Timestamp) -> bool {
    record.expires_at <= now && record.fencing.0 < now.0
}

/// The time for which a [`CasBackend`](crate::CasBackend) keeps a record after its expiry. This margin exceeds the
/// longest delay of a claim between its read and its swap.
pub const CAS_MARGIN: Duration = Duration::from_secs(3_600);

/// Returns true if a [`CasBackend`](crate::CasBackend) may remove the record: [`CAS_MARGIN`] has passed since
/// [`expires_at`](Record::expires_at), and the record's fencing number cannot be issued again.
///
/// Without the margin, a claim could read no record and swap late, after another claim's record was removed. The late
/// swap would succeed and grant a lower fencing number. A store whose claim is one atomic step uses [`purgeable`]
/// instead.
#[must_use]
pub fn removable(record: &Record, now: Timestamp) -> bool {
    purgeable(record, now) && record.expires_at + CAS_MARGIN <= now
}

/// Checks whether `held` may read and record steps, and returns the time at which its record began.
///
/// Steps are stored under this time ([`Record::first_seen`]). Steps stored under another time belong to a record that
/// no longer exists. A takeover and a release that keeps the record keep the time. A deletion, the expiry of the record and an
/// operator's `forget` reset it.
///
/// # Errors
/// Returns the current state if `held` does not hold the key.
pub fn begun(found: Option<&Record>, held: &ClaimHandle, now: Timestamp) -> Result<Timestamp, StateKind> {
    match live(found, now).map(|record| (record, &record.state)) {
        Some((record, State::Consuming { owner, .. })) if held.is(*owner, record.fencing) => Ok(record.first_seen),
        other => Err(other.map_or(StateKind::Absent, |(_, state)| state.kind())),
    }
}

/// Adds a step to the steps of its record, or replaces a known step if the new state is a later one.
///
/// A repeated request changes nothing: the first result is kept.
pub fn note(steps: &mut Vec<StepRecord>, step: &StepRecord) {
    match steps.iter_mut().find(|known| known.name == step.name) {
        None => steps.push(step.clone()),
        Some(known) if known.state < step.state => *known = step.clone(),
        Some(_) => {}
    }
    steps.sort_by_key(|step| step.place);
}

/// Applies `write` if the record is consuming and owned by this owner under this grant.
fn update_owned(
    found: Option<&Record>,
    held: &ClaimHandle,
    now: Timestamp,
    write: impl FnOnce(&Record, Timestamp, Option<FencingToken>) -> Write,
) -> (Settled, Write) {
    match live(found, now).map(|record| (record, &record.state)) {
        Some((record, State::Consuming { owner, until, taken_over })) if held.is(*owner, record.fencing) => {
            (Settled::Done, write(record, *until, *taken_over))
        }
        other => {
            let now = other.map_or(StateKind::Absent, |(_, state)| state.kind());
            (Settled::Lost { now }, Write::Keep)
        }
    }
}

/// Returns whether `held` completed a record that has this owner and fencing number.
fn was_completed_by(held: &ClaimHandle, owner: OwnerToken, fencing: FencingToken) -> bool {
    if owner == OwnerToken::NOT_KEPT { held.fencing == Some(fencing) } else { held.is(owner, fencing) }
}

/// Grants the key. `found` counts for the fencing number even if it has expired; `known` is the live record, if any.
fn grant(
    found: Option<&Record>,
    known: Option<&Record>,
    request: &ClaimRequest,
    now: Timestamp,
    taken_over: Option<FencingToken>,
) -> (Claim, Write) {
    let fencing = FencingToken(found.map_or(0, |record| record.fencing.0.saturating_add(1)).max(now.0));
    let attempt = known.map_or(0, |record| record.attempt).saturating_add(1);
    let until = now + request.lease;
    let record = Record {
        fencing,
        attempt,
        fingerprint: request.fingerprint,
        state: State::Consuming { owner: request.owner, until, taken_over },
        expires_at: until + request.retention,
        first_seen: known.map_or(now, |record| record.first_seen),
        updated_at: now,
        display: request.display.clone(),
    };
    (Claim::Acquired(Grant { fencing, attempt, lease: request.lease, taken_over }), Write::Put(record))
}

fn bury(record: &Record, error: &Arc<str>, retention: Duration, now: Timestamp) -> (Claim, Write) {
    let state = State::Dead { error: error.clone() };
    let buried = Record { state, expires_at: now + retention, updated_at: now, ..record.clone() };
    (Claim::Dead(dead(record, error)), Write::Put(buried))
}

/// Deletes a record if the clock has passed its fencing number, since the next grant's number is then higher without
/// any record. Otherwise an expired tombstone keeps the number for one tick.
fn delete(record: &Record, error: Arc<str>, now: Timestamp) -> Write {
    if record.fencing.0 < now.0 { Write::Delete } else { Write::Put(tombstone(record, error, now)) }
}

/// Returns an expired record that counts as absent and keeps the fencing number of a deleted one.
pub(crate) fn tombstone(record: &Record, error: Arc<str>, now: Timestamp) -> Record {
    let state = State::Vacant { not_before: now, error, taken_over: None };
    Record { state, expires_at: now, updated_at: now, display: None, ..record.clone() }
}

fn fingerprint_differs(record: &Record, request: &ClaimRequest) -> bool {
    // A dead key stays dead for every payload: only an operator can revive it.
    record.state.kind() != StateKind::Dead
        && matches!((record.fingerprint, request.fingerprint), (Some(kept), Some(new)) if kept != new)
}

fn dead(record: &Record, error: &Arc<str>) -> Dead {
    Dead { attempts: record.attempt, fencing: record.fencing, error: error.clone() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Identity, Scene};

    /// Completes a record that keeps the owner `kept` again, as owner `asks` under `number`.
    fn completed_again(kept: OwnerToken, asks: OwnerToken, number: Option<u64>) -> Settled {
        let key = Identity::new(Scene::Mq, "protocol", "k").key("tests").unwrap();
        let record = Record {
            fencing: FencingToken(7),
            attempt: 1,
            fingerprint: None,
            state: State::Consumed { owner: kept, value: None },
            expires_at: Timestamp(1_000),
            first_seen: Timestamp(7),
            updated_at: Timestamp(8),
            display: None,
        };
        let done = Completion { value: None, retain: Duration::from_secs(1) };
        let (settled, write) = complete(
            Some(&record),
            &ClaimHandle { key, owner: asks, fencing: number.map(FencingToken), terms: None },
            &done,
            Timestamp(9),
        );
        assert_eq!(write, Write::Keep, "the first result is kept, whoever completes");
        settled
    }

    const LOST: Settled = Settled::Lost { now: StateKind::Consumed };

    #[test]
    fn a_completed_owner_without_a_kept_token_is_identified_by_its_number_alone() {
        let again = |asks, number| completed_again(OwnerToken::NOT_KEPT, asks, number);
        assert_eq!(again(OwnerToken(5), Some(7)), Settled::Done);
        assert_eq!(again(OwnerToken(5), Some(6)), LOST, "an overtaken run");
        assert_eq!(again(OwnerToken(5), None), LOST, "no number to identify the owner");
        assert_eq!(again(OwnerToken::NOT_KEPT, None), LOST, "zero is not a token");
    }

    #[test]
    fn a_completed_owner_with_a_kept_token_is_identified_by_token_and_number() {
        let again = |asks, number| completed_again(OwnerToken(5), asks, number);
        assert_eq!(again(OwnerToken(5), Some(7)), Settled::Done);
        assert_eq!(again(OwnerToken(5), None), Settled::Done);
        assert_eq!(again(OwnerToken(5), Some(6)), LOST);
        assert_eq!(again(OwnerToken(4), Some(7)), LOST);
    }
}
